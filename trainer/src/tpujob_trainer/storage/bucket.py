"""What a bucket can do.

A further backend is a module with a class that has these methods, and a line in `opening`.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

from etils import epath

from tpujob_contract import storage_address


@dataclasses.dataclass(frozen=True)
class Stored:
    """An object as it was read."""

    data: bytes
    version: bytes
    """Changes with every write; for conditional writes."""


class Bucket(Protocol):
    """The objects under one URL. Methods may be called from any thread.

    Nothing is cached: a read sees what any other process wrote before. Every method raises OSError with the name of the
    object when storage fails: PermissionError when it refuses, TimeoutError or ConnectionError when it is out of reach
    (`storage.errors` tells them from each other).
    """

    url: str
    """Of the folder that names are relative to, without a slash at its end."""

    def read(self, name: str) -> bytes:
        """The content of an object.

        Raises:
            FileNotFoundError: there is none.
        """

    def look(self, name: str) -> Stored | None:
        """The content of an object and its version; None when there is none."""

    def write(self, name: str, data: bytes | str) -> None:
        """Writes an object in the place of the one that may be there. Readers see the one or the other, whole."""

    def create(self, name: str, data: bytes | str) -> bytes | None:
        """Writes an object unless there is one. Of several that try at once with different data, one succeeds.

        Returns:
            The version; None when there is an object with other data.
        """

    def replace(self, name: str, data: bytes | str, *, version: bytes) -> bytes | None:
        """Writes an object if it still has this version.

        Returns:
            The new version; None when the object has changed or is gone, and was left alone. An answer that was lost on
            its way looks like that as well: an object with the same data counts as written.
        """

    def names(self, prefix: str = "") -> list[str]:
        """The names that begin with `prefix`, sorted, those in folders below included."""

    def delete(self, name: str, *, version: bytes | None = None) -> bool:
        """Removes an object, with `version` only if it still has that; whether it is gone."""


def is_local(url: epath.PathLike) -> bool:
    """Whether the URL is a path on a mounted file system."""
    return storage_address.is_path(str(url))
