"""Lists the files of a source: which of those at its address belong to it, and their format."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from tpujob_contract import storage_address
from tpujob_trainer.data.config import SourceConfig
from tpujob_trainer.data.formats import FORMATS, Format, format_named, is_of
from tpujob_trainer.data.manifest import left_out
from tpujob_trainer.data.manifest.left_out import known_by_content
from tpujob_trainer.data.sources.files import DataFile, DataRoot, find_root, list_files
from tpujob_trainer.data.sources.folder_kinds import split_of
from tpujob_trainer.data.sources.hugging_face import dataset_files
from tpujob_trainer.data.sources.saved_dataset import saved_files
from tpujob_trainer.data.sources.tfds import find_tfds_version
from tpujob_trainer.errors import ConfigurationError, NotFoundError

logger = logging.getLogger(__name__)

_COMMIT = re.compile("@[0-9a-f]{40}")


@dataclass(frozen=True)
class Listing:
    """Files of one format below one root, sorted by path."""

    root: DataRoot
    format: Format
    files: list[DataFile]


def list_source(config: SourceConfig, field: str) -> Listing:
    """The files that a source currently refers to.

    Args:
        config: the source.
        field: its place in the configuration, for messages.

    Raises:
        NotFoundError: nothing is there, nothing there can be read as data, or it may not be read.
        ConfigurationError: there is no such configuration or split.
    """
    if config.dataset is not None:
        what, where = config.dataset, f"{field}.dataset"
        root, files = dataset_files(config, field)
    else:
        assert config.path is not None
        what, where = config.path, f"{field}.path"
        root, files = list_files(config.path, where)
        saved = saved_files(root, files, config.split, field)
        version = find_tfds_version(root, files) if saved is None else None
        if version is not None:
            return Listing(root, format_named(version.format), version.files_of(config.split, field))
        files, is_of_split = saved or (files, False)
        files = files if is_of_split else _of_split(config, files, field)
    return _of_one_format(config, root, files, what, where)


def _of_split(config: SourceConfig, files: list[DataFile], field: str) -> list[DataFile]:
    """The files of the split that is asked for; all, with a warning if there are several splits, if none is."""
    there = sorted({split for file in files if (split := split_of(file.path)) is not None})
    if config.split is None:
        if "train" in there and len(there) > 1:
            logger.warning("%s: %s are read together; split chooses one of them", config.path, ", ".join(there))
        return files
    if not there:
        raise ConfigurationError(
            f"{field}.split: {config.split!r}, but {config.path!r} is not the folder of a TFDS version, and has no "
            "splits; write the split into the path, or leave the key out"
        )
    wanted = split_of(f"{config.split}/")
    found = [file for file in files if split_of(file.path) == wanted is not None]
    if not found:
        raise ConfigurationError(
            f"{field}.split: {config.split!r} is not a split of {config.path!r}; there are {', '.join(there)}"
        )
    return found


def is_pinned(root: str) -> bool:
    """Whether a root is a commit, whose files cannot change."""
    return storage_address.scheme_of(root) == "hf" and _COMMIT.search(root) is not None


def root_now(config: SourceConfig, field: str, begun_with: str) -> str:
    """The URL of the current root of a continued run's files: data may move, but a commit does not change."""
    if is_pinned(begun_with):
        return begun_with
    if config.dataset is not None:
        return dataset_files(config, field)[0].url
    assert config.path is not None
    return find_root(config.path, f"{field}.path").url


def _of_one_format(config: SourceConfig, root: DataRoot, files: list[DataFile], what: str, where: str) -> Listing:
    wanted = [format_named(config.format)] if config.format else FORMATS
    for known in wanted:
        fitting = [file for file in files if is_of(known, file.path)]
        if config.format and not fitting and len(files) == 1:
            fitting = files  # one file that was named, whatever its name
        if fitting:
            return _listing(root, known, files, fitting, what)
    if not config.format:
        by_content, _ = known_by_content(root, files)
        for name, found in by_content.items():
            if found:
                return _listing(root, format_named(name), files, found, what)
    suffixes = ", ".join(known.suffixes[0] for known in wanted)
    count = f"{len(files)} file{'s' if len(files) != 1 else ''}"
    none = "none ends with" if config.format else "none is text or ends with"
    raise NotFoundError(
        f"{where}: {what!r} matches {count}, {files[0].path!r} for one, but {none} {suffixes}; "
        "give such files, or make some with `tpujob data from-folder`"
    )


def _listing(root: DataRoot, known: Format, files: list[DataFile], fitting: list[DataFile], what: str) -> Listing:
    """The files of a format; for texts, also those whose content is text. Logs the files that are left out."""
    named = {file.path for file in fitting}
    others = [file for file in files if file.path not in named]
    if known.name == "text":
        # A file of another format is data of its own, even if its content is text.
        of_others = {file.path for file in others if any(is_of(each, file.path) for each in FORMATS)}
        taken, left = known_by_content(root, [file for file in others if file.path not in of_others])
        structured = [(file.path, "JSON") for file in taken["jsonl"]]
        left = [*left, *structured, *((path, "not text") for path in sorted(of_others))]
        fitting = sorted([*fitting, *taken["text"]], key=lambda file: file.path)
    else:
        left = [(file.path, f"not {known.name}") for file in others if not left_out.describes(file.path)]
    left_out.tell(what, len(files), left)
    return Listing(root, known, fitting)
