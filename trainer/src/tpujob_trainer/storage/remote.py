"""Files of storage: remote ones in ranges, one request for each read, nothing cached; on local disks; small ones whole.

`exists` of a storage client may answer "no" for every failure: because of one 503, a tokenizer would have no chat
template. Here, only the answer "not found" means that a file does not exist.
"""

import errno
import functools
import io
from collections.abc import Callable
from typing import Any

from tpujob_trainer.storage import reachability
from tpujob_trainer.storage.errors import status_of
from tpujob_trainer.storage.filesystems import has_protocol, is_at_commit
from tpujob_trainer.storage.read_meter import METER, ReadMeter
from tpujob_trainer.storage.retrying import IncompleteReadError, Retrying, cause_of
from tpujob_trainer.storage.versions import AcceptedFiles, DataChangedError, FileStatus, changed, fetcher, version_of
from tpujob_trainer.values.errors import ConfigurationError

_NO_SUCH_RANGE = 416
_PRECONDITION_FAILED = 412

RETRYING = Retrying()
"""Shared in this process: a Retry-After holds for all its threads."""
ACCEPTED = AcceptedFiles()
"""Shared in this process."""


class SizeChangedError(OSError):
    """An object does not have the expected size."""

    def __init__(self, size: int, now: int) -> None:
        super().__init__(f"its size was {size} bytes, now {now}")


class LocalFile(io.FileIO):
    """A file on a disk of this host; its reads are counted.

    With a version, it is compared when it is opened, and at the end of the `with` block that reads it: everything read
    in between is from one file that was not written to.
    """

    def __init__(self, location: str, version: str | None = None, name: str = "") -> None:
        """Opens a file.

        Args:
            location: Its path.
            version: That of the manifest, as made by `sampled_version`; None: it is not compared.
            name: In messages; empty: its path.

        Raises:
            DataChangedError: it is another file.
        """
        super().__init__(location)
        self._name = name or location
        self._opened: FileStatus | None = None
        self._closed: FileStatus | None = None
        if version is not None:
            try:
                self._opened = ACCEPTED.require(location, self.fileno(), version, self._name)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Closes the file; a reader of parquet calls this itself."""
        if not self.closed and self._opened is not None:
            self._closed = FileStatus.of(self.fileno())
        super().close()

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        self.close()
        if kind is None and self._opened != self._closed:
            raise DataChangedError(changed(self._name, "it was written to or replaced while it was read"))

    def read(self, size: int | None = -1) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        data: bytes = super().read(-1 if size is None else size)
        METER.delivered(len(data))
        return data

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer as far as the file goes; returns the number of bytes."""
        count = super().readinto(buffer)
        METER.delivered(count)
        return count


def request[T](what: str, ask: Callable[[], T]) -> T:
    """The answer to a request about `what`, such as a listing or a size; retried if that may help.

    Raises:
        StorageFailedError: the storage has failed for too long.
    """

    def counted() -> T:
        with METER.request(what):
            return ask()

    return RETRYING(what, counted)


def reach(url: str) -> None:
    """Returns when a server answers at a URL; retried as other requests are.

    Libraries retry for half a minute before they report that a name is unknown.

    Raises:
        StorageFailedError: no server has answered for too long.
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
        version: str = "",
        query: str = "",
        name: str = "",
        limit_seconds: float | None = None,
        retrying: Retrying | None = None,
        meter: ReadMeter = METER,
    ) -> None:
        """Asks the storage only for the size, if that is not known.

        Args:
            filesystem: of fsspec.
            location: path without protocol.
            size: bytes of the object; None: the storage is asked.
            version: the version to read, in the terms of the storage; empty: any.
            query: of the address: it is sent, and is in no message.
            name: in the message about a changed file; empty: its location.
            limit_seconds: how long a failed read is retried; None: the limit of `retrying`.
            retrying: retries failed reads; None: the one of this process.
            meter: counts the reads.
        """
        self._filesystem = filesystem
        self._location = location
        self._address = location + query
        self._version = version
        self._name = name or location
        self._retrying = retrying or RETRYING
        self._limit_seconds = limit_seconds
        self._meter = meter
        self._fetch = fetcher(filesystem, self._address, version)
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
        """Moves without any request."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Exactly `size` bytes, or up to the end of the object.

        Raises:
            StorageFailedError: the storage has failed for too long.
            SizeChangedError: the object has another size than expected.
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
        """Fills a buffer as far as the object goes; returns the number of bytes."""
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
            if self._version and (isinstance(error, FileNotFoundError) or status_of(error) == _PRECONDITION_FAILED):
                self._require_version(error)
            raise
        self._meter.delivered(len(data))
        if len(data) != end - start:
            self._require_size()
            raise IncompleteReadError(f"{len(data)} bytes came of {end - start} from {start} on")
        return data

    def _require_size(self) -> None:
        """Raises SizeChangedError if the object has another size; one at a commit cannot change, and is not checked."""
        if is_at_commit(self._filesystem, self._location):
            return
        now = self._size_now()
        if now != self._size:
            raise SizeChangedError(self._size, now)

    def _require_version(self, error: Exception) -> None:
        """Raises DataChangedError if the object has been replaced."""
        now = version_of(self._info_now())
        if now != self._version:
            how = f"its version was {self._version}, now {now or 'unknown'}"
            raise DataChangedError(changed(self._name, how)) from error

    def _size_now(self) -> int:
        return int(self._info_now()["size"])

    def _info_now(self) -> dict[str, Any]:
        with self._meter.request(self._location):
            self._filesystem.invalidate_cache(self._location)
            info: dict[str, Any] = self._filesystem.info(self._address)
            return info


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
    if not query and not has_protocol(filesystem, "https"):
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
