"""A bucket on any storage that fsspec opens, without writes on a version: fsspec has no common interface for them."""

import contextlib
import hashlib

import fsspec

from tpujob_trainer.storage.bucket import Stored
from tpujob_trainer.storage.whole import read_whole
from tpujob_trainer.values.errors import ConfigurationError


class FsspecBucket:
    """A `Bucket` without `replace`."""

    def __init__(self, url: str) -> None:
        """Nothing is read yet.

        Raises:
            ConfigurationError: fsspec does not know the protocol, or lacks a package for it.
        """
        self.url = url
        try:
            self._files, self._folder = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ConfigurationError(f"{url} is on a storage that cannot be opened here: {error}") from error

    def read(self, name: str) -> bytes:
        found = read_whole(f"{self.url}/{name}", lambda: self._read(name))
        assert found is not None
        return found.data

    def _read(self, name: str) -> Stored:
        data = self._files.cat_file(self._path(name))
        return Stored(data, hashlib.sha256(data).digest())

    def look(self, name: str) -> Stored | None:
        try:
            return read_whole(f"{self.url}/{name}", lambda: self._read(name))
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes | str) -> None:
        # In one request: a file object's failed upload leaves a cycle that crashes Python before 3.12.7 when it is
        # collected (https://github.com/python/cpython/issues/77894).
        self._files.pipe_file(self._path(name), _bytes(data))

    def create(self, name: str, data: bytes | str) -> bytes | None:
        try:
            self._files.pipe_file(self._path(name), _bytes(data), mode="create")
        except FileExistsError:
            if self.read(name) != _bytes(data):
                return None
        return hashlib.sha256(_bytes(data)).digest()

    def replace(self, name: str, data: bytes | str, *, version: bytes) -> bytes | None:
        """Not supported.

        Raises:
            ConfigurationError: always.
        """
        raise self._unconditional(name)

    def names(self, prefix: str = "") -> list[str]:
        self._files.invalidate_cache()
        found = (path.removeprefix(self._folder).lstrip("/") for path in self._files.find(self._folder))
        return sorted(name for name in found if name.startswith(prefix))

    def delete(self, name: str, *, version: bytes | None = None) -> bool:
        """As `Bucket.delete`, without `version`.

        Raises:
            ConfigurationError: `version` is given.
        """
        if version is not None:
            raise self._unconditional(name)
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))
        return True

    def _unconditional(self, name: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self.url}/{name} cannot be changed under a condition: this storage has no such write; "
            "use gs:// or a mounted directory"
        )

    def _path(self, name: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}"


def _bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data
