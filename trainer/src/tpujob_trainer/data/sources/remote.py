"""A file of storage that is not a disk of this host, read in ranges: one request for each read, nothing kept."""

from __future__ import annotations

import functools
import importlib
import io
from collections.abc import Callable
from typing import Any

import fsspec.asyn

from tpujob_trainer.data.sources.hub import is_at_commit, is_hub, url_of
from tpujob_trainer.data.sources.read_meter import METER, ReadMeter
from tpujob_trainer.data.sources.retrying import IncompleteReadError, Retrying, status_of
from tpujob_trainer.storage import reachability

REQUEST_SECONDS = 60.0
"""For one range to arrive; then it is asked for again."""

_NO_SUCH_RANGE = 416

RETRYING = Retrying()
"""Of this process: a Retry-After holds for all its threads."""


class SizeChangedError(OSError):
    """An object is not as long as it should be."""

    def __init__(self, size: int, now: int) -> None:
        super().__init__(f"its size was {size} bytes, now {now}")


class LocalFile(io.FileIO):
    """A file on a disk of this host; its reads are counted."""

    def read(self, size: int | None = -1) -> bytes:
        """Up to so many bytes; fewer only at the end of the file."""
        data: bytes = super().read(-1 if size is None else size)
        METER.delivered(len(data))
        return data

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as the file goes."""
        count = super().readinto(buffer)
        METER.delivered(count)
        return count


def request[T](what: str, ask: Callable[[], T]) -> T:
    """The answer to a question about `what`: a listing, a size; asked again where that may help.

    Raises:
        StorageFailedError: the storage has failed for too long.
    """

    def counted() -> T:
        with METER.request(what):
            return ask()

    return RETRYING(what, counted)


def reach(url: str) -> None:
    """Returns when somebody answers where a URL leads; asked again as other requests are.

    Libraries ask for half a minute before they say that a name is unknown.

    Raises:
        StorageFailedError: nobody has answered for too long.
    """
    server = reachability.server_of(url)
    if server is not None:
        RETRYING(url, lambda: reachability.connect(server))


class RemoteFile(io.RawIOBase):
    """The bytes of an object, for one thread at a time."""

    def __init__(
        self,
        filesystem: Any,
        location: str,
        size: int | None = None,
        *,
        limit_seconds: float | None = None,
        retrying: Retrying | None = None,
        meter: ReadMeter = METER,
    ) -> None:
        """Asks the storage for nothing but the size, where that is not known.

        Args:
            filesystem: of fsspec.
            location: path without protocol.
            size: bytes of the object, None to ask.
            limit_seconds: how long a failed read is repeated; None: as `retrying` has it.
            retrying: when a failed read is repeated; None: as all of this process are.
            meter: counts.
        """
        self._filesystem = filesystem
        self._location = location
        self._retrying = retrying or RETRYING
        self._limit_seconds = limit_seconds
        self._meter = meter
        self._fetch = _fetcher(filesystem, location)
        self._size = size if size is not None else self._retrying(location, self._size_now, limit_seconds=limit_seconds)
        self._at = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Bytes before the next read."""
        return self._at

    def size(self) -> int:
        """Bytes of the object."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move without any request."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Exactly so many bytes, or up to the end of the object.

        Raises:
            StorageFailedError: the storage has failed for too long.
            SizeChangedError: the object has another size than was said.
        """
        start = min(self._at, self._size)
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        if start == end:
            return b""
        data = self._retrying(
            self._location, functools.partial(self._read_once, start, end), limit_seconds=self._limit_seconds
        )
        self._at = end
        return data

    def readall(self) -> bytes:
        """All that is left."""
        return self.read()

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as the object goes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read_once(self, start: int, end: int) -> bytes:
        try:
            with self._meter.request(self._location):
                data = self._fetch(start, end)
        except Exception as error:
            if status_of(error) == _NO_SUCH_RANGE:
                self._require_size()
            raise
        self._meter.delivered(len(data))
        if len(data) != end - start:
            self._require_size()
            raise IncompleteReadError(f"{len(data)} bytes came of {end - start} from {start} on")
        return data

    def _require_size(self) -> None:
        """Whether the object has been cut, or only the answer; what cannot be cut is not asked for."""
        if is_at_commit(self._filesystem, self._location):
            return
        now = self._size_now()
        if now != self._size:
            raise SizeChangedError(self._size, now)

    def _size_now(self) -> int:
        with self._meter.request(self._location):
            self._filesystem.invalidate_cache(self._location)
            return int(self._filesystem.info(self._location)["size"])


def _fetcher(filesystem: Any, location: str) -> Callable[[int, int], bytes]:
    """A function that asks once for the bytes [start, end) of an object.

    Asynchronous file systems (gs, s3, http) are asked with a limit; the hub without the repetitions of its own client,
    which know nothing of other threads; any other one as it can.
    """
    if isinstance(filesystem, fsspec.asyn.AsyncFileSystem):

        def fetch(start: int, end: int) -> bytes:
            read = filesystem._cat_file  # noqa: SLF001 - its public form knows no limit
            data: bytes = fsspec.asyn.sync(
                filesystem.loop,
                read,
                location,
                start=start,
                end=end,
                timeout=REQUEST_SECONDS,
            )
            return data

        return fetch
    if is_hub(filesystem):
        return functools.partial(_fetch_from_hub, filesystem, location)

    def read(start: int, end: int) -> bytes:
        with filesystem.open(location, "rb", cache_type="none") as file:
            file.seek(start)
            data: bytes = file.read(end - start)
            return data

    return read


def _fetch_from_hub(filesystem: Any, location: str, start: int, end: int) -> bytes:
    hub: Any = importlib.import_module("huggingface_hub.utils")
    headers = hub.build_hf_headers(token=filesystem.token) | {"Range": f"bytes={start}-{end - 1}"}
    answer = hub.get_session().get(url_of(filesystem, location), headers=headers, timeout=REQUEST_SECONDS)
    if answer.status_code == 404:
        raise FileNotFoundError(location)
    if answer.status_code in (401, 403):
        raise PermissionError(f"{answer.status_code} {answer.reason_phrase}: {location}")
    hub.hf_raise_for_status(answer)
    data: bytes = answer.content
    return data
