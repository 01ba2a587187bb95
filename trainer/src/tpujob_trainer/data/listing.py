"""The files of a source: which of those that are there belong to it, and of what kind they are."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tpujob_trainer.data.config import SourceConfig
from tpujob_trainer.data.files import DataFile, DataRoot, list_files
from tpujob_trainer.data.formats import FORMATS, Format
from tpujob_trainer.errors import NotFoundError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listing:
    """Files of one kind below one root, sorted by path."""

    root: DataRoot
    format: Format
    files: list[DataFile]


def list_source(config: SourceConfig, field: str) -> Listing:
    """The files that a source means now.

    Args:
        config: the source.
        field: where it stands in the configuration, for messages.

    Raises:
        NotFoundError: nothing is there, nothing there can be read as data, or it may not be read.
    """
    root, files = list_files(config.path, f"{field}.path")
    for known in FORMATS:
        fitting = [file for file in files if file.path.endswith(known.suffixes)]
        if fitting:
            if len(fitting) < len(files):
                logger.info(
                    "Files that are not %s are left out: count=%d path=%s",
                    known.name, len(files) - len(fitting), config.path,
                )  # fmt: skip
            return Listing(root, known, fitting)
    suffixes = ", ".join(suffix for known in FORMATS for suffix in known.suffixes)
    raise NotFoundError(
        f"{field}.path: {config.path!r} matches {len(files)} files, {files[0].path!r} for one, but none ends with "
        f"{suffixes}; give such files, or make some with `tpujob data from-folder`"
    )
