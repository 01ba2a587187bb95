"""A bucket on Google Cloud Storage or in a directory.

TensorStore writes the arrays of checkpoints to the same place, has conditional writes for both kinds of storage, and
retries while storage is overloaded.
"""

import functools
import os
from typing import Any

import tensorstore

from tpujob_contract import storage_address
from tpujob_trainer.storage import errors
from tpujob_trainer.storage.bucket import Stored, is_local
from tpujob_trainer.storage.whole import read_whole
from tpujob_trainer.values.errors import brief

REQUEST_SECONDS = 30.0
"""Limit for one object, including all retries."""


class TensorStoreBucket:
    """A `Bucket` on `gs://` or on a mounted file system."""

    def __init__(self, url: str) -> None:
        """Nothing is read yet. `url` is a `gs://` address or an absolute path."""
        self.url = url
        self._objects = tensorstore.KvStore.open(kvstore_spec(self.url)).result()

    def read(self, name: str) -> bytes:
        found = self.look(name)
        if found is None:
            raise FileNotFoundError(2, "not there", f"{self.url}/{name}")
        return found.data

    def look(self, name: str) -> Stored | None:
        return read_whole(f"{self.url}/{name}", lambda: self._look(name))

    def _look(self, name: str) -> Stored | None:
        found = self._wait(name, self._objects.read(name))
        return Stored(found.value, found.stamp.generation) if found.state == "value" else None

    def write(self, name: str, data: bytes | str) -> None:
        self._wait(name, self._objects.write(name, _bytes(data)))

    def create(self, name: str, data: bytes | str) -> bytes | None:
        return self.replace(name, data, version=self._absent)

    def replace(self, name: str, data: bytes | str, *, version: bytes) -> bytes | None:
        written = self._wait(name, self._objects.write(name, _bytes(data), if_equal=version))
        if written.generation:
            generation: bytes = written.generation
            return generation
        found = self.look(name)
        return found.version if found is not None and found.data == _bytes(data) else None

    def names(self, prefix: str = "") -> list[str]:
        # The first name after all with this prefix: its last character plus one.
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else ""
        found = self._wait(prefix, self._objects.list(tensorstore.KvStore.KeyRange(prefix, end)))
        # A name that is no UTF-8 is not one of ours, and could not be read.
        return sorted(name.decode() for name in found if name.decode(errors="ignore").encode() == name)

    def delete(self, name: str, *, version: bytes | None = None) -> bool:
        return bool(self._wait(name, self._objects.write(name, None, if_equal=version)).generation)

    @functools.cached_property
    def _absent(self) -> bytes:
        """The version of an object that does not exist; TensorStore has no constant for it."""
        name = "a name that no object has"
        generation: bytes = self._wait(name, self._objects.read(name)).stamp.generation
        return generation

    def _wait(self, name: str, future: Any) -> Any:
        """The result of a future. TensorStore raises ValueError with a status code in its text for every failure."""
        where = f"{self.url}/{name}"
        try:
            return future.result(timeout=REQUEST_SECONDS)
        except TimeoutError as error:
            raise TimeoutError(f"{where}: no answer within {REQUEST_SECONDS:.0f} s") from error
        except ValueError as error:
            raise _explained(error, where) from error


def _explained(error: ValueError, where: str) -> OSError:
    if errors.is_refused(error):
        return PermissionError(13, brief(error), where)
    if errors.is_out_of_reach(error):
        return ConnectionError(f"{where}: {brief(error)}")
    if str(error).startswith("NOT_FOUND"):
        return FileNotFoundError(2, brief(error), where)
    return OSError(f"{where}: {brief(error)}")


def _bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data


def kvstore_spec(url: str) -> dict[str, Any]:
    """TensorStore's description of a folder, which is a `gs://` address or an absolute path."""
    if is_local(url):
        return {"driver": "file", "path": os.path.join(url, "")}  # noqa: PTH118 - pathlib drops the last slash
    place = storage_address.parse(url)
    folder = place.path.strip("/")
    return {"driver": "gcs", "bucket": place.bucket, "path": f"{folder}/" if folder else ""}
