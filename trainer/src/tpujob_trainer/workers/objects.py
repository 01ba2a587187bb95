"""Small objects below one directory, created, replaced and deleted under conditions. Local paths and gs://.

A write is conditional on the generation that the writer saw last, so that of several writers one succeeds. An answer
that gets lost on its way looks like a condition that failed: the content is then compared, which is why each writer
puts something of its own into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorstore

from tpujob_trainer import atomic_files

REQUEST_SECONDS = 60.0
"""For one request with all its repetitions inside of TensorStore; then the caller gets a TimeoutError."""


@dataclass(frozen=True)
class Found:
    """An object as it was read."""

    content: bytes
    generation: bytes


class Objects:
    """The objects of one directory. May be used by several threads."""

    def __init__(self, directory: str) -> None:
        """Opens nothing but a connection.

        Args:
            directory: local path or gs:// address.
        """
        self._store = _open(directory)
        self._absent: bytes = self._store.read("a name that no object has").result(REQUEST_SECONDS).stamp.generation

    def read(self, name: str) -> Found | None:
        """The object now; None if there is none."""
        found = self._store.read(name).result(timeout=REQUEST_SECONDS)
        return Found(bytes(found.value), found.stamp.generation) if found.state == "value" else None

    def create(self, name: str, content: bytes) -> bytes | None:
        """The generation of a new object; None if there is one already that differs."""
        return self._write(name, content, self._absent)

    def replace(self, name: str, content: bytes, generation: bytes) -> bytes | None:
        """The generation of the new content; None if the object is no longer that of `generation`."""
        return self._write(name, content, generation)

    def delete(self, name: str, generation: bytes) -> bool:
        """Whether the object was that of `generation`, and is gone."""
        return bool(self._store.write(name, None, if_equal=generation).result(timeout=REQUEST_SECONDS).generation)

    def names(self, prefix: str) -> list[str]:
        """Names that begin with `prefix`, which ends with a slash. One listing."""
        until = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        keys = self._store.list(tensorstore.KvStore.KeyRange(prefix, until)).result(timeout=REQUEST_SECONDS)
        return sorted(key.decode() for key in keys)

    def _write(self, name: str, content: bytes, generation: bytes) -> bytes | None:
        written = self._store.write(name, content, if_equal=generation).result(timeout=REQUEST_SECONDS)
        if written.generation:
            made: bytes = written.generation
            return made
        found = self.read(name)
        return found.generation if found is not None and found.content == content else None


def _open(directory: str) -> Any:
    if atomic_files.is_local(directory):
        return tensorstore.KvStore.open({"driver": "file", "path": f"{directory.rstrip('/')}/"}).result()
    bucket, _, path = directory.removeprefix("gs://").partition("/")
    path = f"{path.strip('/')}/" if path.strip("/") else ""
    return tensorstore.KvStore.open({"driver": "gcs", "bucket": bucket, "path": path}).result(timeout=REQUEST_SECONDS)
