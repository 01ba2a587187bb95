"""Small files of a bucket, read whole.

A broken proxy or cache may answer 200 with a part of an object and a length that fits it. The parts of the formats that
are kept here can be recognized, so each is read again, and its length is asked for where it stays a part.
"""

import itertools
import json
import time
from collections.abc import Callable
from typing import Protocol

from tpujob_trainer.storage.bucket import is_local
from tpujob_trainer.storage.errors import is_out_of_reach
from tpujob_trainer.storage.filesystems import located

PAUSES_SECONDS = (0.2, 1.0, 3.0)
"""Between the tries; the answer of a cache that was filled with a part may be another one soon."""

LAST_BYTES = 4096


class ShortAnswerError(ConnectionError):
    """Storage answers with a part of an object, which says nothing about the object; another attempt may get it all."""


class _HasData(Protocol):
    @property
    def data(self) -> bytes: ...


def read_whole[Found: _HasData](url: str, read: Callable[[], Found | None]) -> Found | None:
    """What `read` returns for the object at a URL, once it is all that storage has; None: there is none.

    Raises:
        ShortAnswerError: it is shorter than storage says it is.
    """
    for tries in itertools.count():
        found = read()
        if found is None or is_local(url) or is_whole(url, found.data):
            return found
        filesystem, path = located(url)
        filesystem.invalidate_cache()
        size = filesystem.info(path)["size"]
        if len(found.data) >= size:
            return found
        if tries == len(PAUSES_SECONDS):
            raise ShortAnswerError(f"{url}: storage answers with {len(found.data)} of its {size} bytes")
        time.sleep(PAUSES_SECONDS[tries])
    raise AssertionError("unreachable")


def retried_if_short[Found](url: str, read: Callable[[], Found]) -> Found:
    """What `read` returns, by a library, from the objects below a URL; a failure in a bucket is tried once more.

    Raises:
        ShortAnswerError: it fails, and storage answers with a part of an object there.
    """
    try:
        return read()
    except Exception as error:
        if is_local(url) or is_out_of_reach(error):
            raise
        require_whole_answers(url)
        time.sleep(PAUSES_SECONDS[0])
    try:
        return read()
    except Exception:
        require_whole_answers(url)
        raise


def require_whole_answers(url: str) -> None:
    """Asks for the last bytes of each object below a URL.

    Raises:
        ShortAnswerError: an answer is shorter than what storage has.
    """
    filesystem, folder = located(url)
    filesystem.invalidate_cache()
    sizes = {path: int(info["size"]) for path, info in filesystem.find(folder, detail=True).items()}
    starts = [max(0, size - LAST_BYTES) for size in sizes.values()]
    answers = filesystem.cat_ranges(list(sizes), starts, list(sizes.values()), on_error="raise")
    for (path, size), start, answer in zip(sizes.items(), starts, answers, strict=True):
        if len(answer) < size - start:
            raise ShortAnswerError(f"{path}: storage answers with {len(answer)} of {size - start} bytes")


def is_whole(name: str, data: bytes) -> bool:
    """Whether the content can be that of a whole file: JSON, Parquet or lines; other kinds are taken as they are."""
    if name.endswith((".jsonl", ".csv")):
        return data.endswith(b"\n") or not data
    if name.endswith(".parquet"):
        return data[:4] == data[-4:] == b"PAR1"
    if name.endswith(".json") or data.startswith(b"{"):
        try:
            json.loads(data)
        except (ValueError, RecursionError):
            return False
    return True
