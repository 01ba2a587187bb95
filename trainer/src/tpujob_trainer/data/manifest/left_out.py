"""Files of a folder that are not read, and why. A folder of texts takes every file with text, whatever its name."""

import logging
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tpujob_contract.file_names import SAMPLE_BYTES, kind_by_name, why_not_text
from tpujob_trainer.data.formats.known import format_of_text
from tpujob_trainer.data.sources.files import DataFile, DataRoot, explained

logger = logging.getLogger(__name__)

SHOWN_FILES = 3
_THREADS = 16
_MARKUP = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype|html|head|body|\?xml|svg|!--)", re.IGNORECASE)
_DESCRIPTIONS = ("README", "LICENSE", "dataset_info", "SHA256SUMS")


@dataclass(frozen=True)
class LeftOut:
    """A file that is not read."""

    file: DataFile
    why: str
    is_data: bool = False
    """Whether it is of a format that could be read."""


def known_by_content(root: DataRoot, files: Sequence[DataFile]) -> tuple[dict[str, list[DataFile]], list[LeftOut]]:
    """By format, jsonl or text, the files whose content it is; each other file, and what it is instead.

    Raises:
        NotFoundError: a file is gone, or may not be read.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(lambda file: _content(root, file), files))
    taken: dict[str, list[DataFile]] = {"jsonl": [], "text": []}
    for file, what in zip(files, found, strict=True):
        if what in taken:
            taken[what].append(file)
    return taken, [LeftOut(file, what) for file, what in zip(files, found, strict=True) if what not in taken]


def _content(root: DataRoot, file: DataFile) -> str:
    """The format of a file, or what it is instead."""
    if (kind := kind_by_name(file.path)) is not None:
        return kind
    with explained(root.locate(file.path)), root.open(file.path, file.size) as opened:
        start = opened.read(min(file.size, SAMPLE_BYTES))
    if (reason := why_not_text(file.path, start)) is not None:
        return reason
    if file.path.lower().endswith(".ipynb"):
        return "a notebook"
    return "HTML or XML" if _MARKUP.match(start) else format_of_text(start)


def describes(path: str) -> bool:
    """Whether a file is about the data set beside it, and so is not reported as left out."""
    return path.rpartition("/")[2].startswith(_DESCRIPTIONS)


def tell(what: str, count: int, left: Sequence[LeftOut]) -> None:
    """Logs a warning about the files that are left out, with the names of the first ones.

    Args:
        what: the path or data set, as it was written.
        count: of all files there.
        left: those that are left out.
    """
    if left:
        shown = ", ".join(f"{each.file.path} ({each.why})" for each in left[:SHOWN_FILES])
        more = f" and {len(left) - SHOWN_FILES:,} more" if len(left) > SHOWN_FILES else ""
        logger.warning("%s: %d of %d files are left out: %s%s", what, len(left), count, shown, more)
