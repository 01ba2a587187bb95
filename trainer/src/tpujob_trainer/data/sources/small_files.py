"""Reads small files beside the data, and distinguishes a missing file from a failure of storage.

`exists` of a storage client may answer "no" for every failure: because of one 503, a tokenizer would have no chat
template. Here, only the answer "not found" means that a file does not exist.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from tpujob_trainer.data.sources.remote import request
from tpujob_trainer.data.sources.retrying import cause_of
from tpujob_trainer.errors import ConfigurationError

MOST_BYTES = 512 * 2**20
"""Of a small file: the largest tokenizers have a tenth. HTTPS servers are not asked for a size, because signed
addresses may allow only the file itself."""


def content_of(filesystem: Any, location: str, query: str = "") -> bytes | None:
    """The content of a file; None: there is none.

    Args:
        filesystem: Of fsspec.
        location: Path without protocol.
        query: Of the address: it is sent, and is in no message.

    Raises:
        StorageFailedError: the storage has failed for too long.
        ConfigurationError: the file is larger than MOST_BYTES.
    """
    size = None
    if not query and "https" not in _protocols(filesystem):
        size = _unless_absent(location, lambda: filesystem.info(location).get("size"))
        if size is not None and size > MOST_BYTES:
            raise ConfigurationError(
                f"{location}: has {size:,} bytes, and {MOST_BYTES:,} are the most of a file of this kind; "
                "is it the file that was meant?"
            )

    def read() -> bytes:
        data: bytes = filesystem.cat_file(location + query)
        if size is not None and len(data) < size:
            raise ConnectionError(f"{location}: {len(data)} of {size} bytes came")
        return data

    return _unless_absent(location, read)


def is_there(filesystem: Any, location: str) -> bool:
    """Whether there is a file or a folder.

    Raises:
        StorageFailedError: the storage has failed for too long.
    """
    return _unless_absent(location, lambda: filesystem.info(location)) is not None


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _unless_absent[T](location: str, ask: Callable[[], T]) -> T | None:
    def asked() -> T | None:
        try:
            return ask()
        except (IsADirectoryError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            if not isinstance(error, FileNotFoundError):
                raise
            if cause_of(error) is not None:
                raise
            return None

    return request(location, asked)
