"""Files of a folder that are not read, and why. A folder of texts takes every file with text, whatever its name."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tpujob_contract.values.text_files import SAMPLE_BYTES, kind_by_name, why_not_text
from tpujob_trainer.data.sources.files import DataFile, DataRoot, explained

logger = logging.getLogger(__name__)

SHOWN_FILES = 3
_THREADS = 16
_DESCRIPTIONS = ("README", "LICENSE", "dataset_info", "SHA256SUMS")


def texts_among(root: DataRoot, files: Sequence[DataFile]) -> tuple[list[DataFile], list[tuple[str, str]]]:
    """The files whose content is text; for each other file, its path and what it is instead.

    Args:
        root: of the files.
        files: whose names fit no format.

    Raises:
        NotFoundError: a file is gone, or may not be read.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        reasons = list(pool.map(lambda file: _reason(root, file), files))
    taken = [file for file, why in zip(files, reasons, strict=True) if why is None]
    return taken, [(file.path, why) for file, why in zip(files, reasons, strict=True) if why is not None]


def _reason(root: DataRoot, file: DataFile) -> str | None:
    if (kind := kind_by_name(file.path)) is not None:
        return kind
    with explained(root.locate(file.path)), root.open(file.path, file.size) as opened:
        return why_not_text(file.path, opened.read(min(file.size, SAMPLE_BYTES)))


def describes(path: str) -> bool:
    """Whether a file is about the data set beside it, and so is not reported as left out."""
    return path.rpartition("/")[2].startswith(_DESCRIPTIONS)


def tell(what: str, count: int, left: Sequence[tuple[str, str]]) -> None:
    """Logs a warning about the files that are left out, with the names of the first ones.

    Args:
        what: the path or data set, as it was written.
        count: of all files there.
        left: the path of each that is left out, and why.
    """
    if left:
        shown = ", ".join(f"{path} ({why})" for path, why in left[:SHOWN_FILES])
        more = f" and {len(left) - SHOWN_FILES:,} more" if len(left) > SHOWN_FILES else ""
        logger.warning("%s: %d of %d files are left out: %s%s", what, len(left), count, shown, more)
