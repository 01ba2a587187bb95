"""The interface of a bucket.

To add a backend, write a class with these methods in a module of its own, and open it in `storage`.
"""

import dataclasses
import os
import re
from typing import Protocol

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
    object when storage fails: PermissionError when it denies access, TimeoutError or ConnectionError when it is out of
    reach (`storage.errors` distinguishes them).
    """

    url: str
    """URL of the folder that names are relative to, without a trailing slash."""

    def read(self, name: str) -> bytes:
        """The content of an object.

        Raises:
            FileNotFoundError: there is none.
        """

    def look(self, name: str) -> Stored | None:
        """The content of an object and its version; None: there is none."""

    def write(self, name: str, data: bytes | str) -> None:
        """Writes an object, and replaces an existing one. Readers see either the old or the new object, complete."""

    def create(self, name: str, data: bytes | str) -> bytes | None:
        """Writes an object unless it exists. If several processes try at once with different data, one succeeds.

        Returns:
            The version; None: there is an object with other data.
        """

    def replace(self, name: str, data: bytes | str, *, version: bytes) -> bytes | None:
        """Writes an object if it still has this version.

        Returns:
            The new version; None: the object has changed or is gone, and was not written. A lost response looks like
            that as well, so an object with the same data counts as written.
        """

    def names(self, prefix: str = "") -> list[str]:
        """The names that begin with `prefix`, sorted, including those in subfolders."""

    def delete(self, name: str, *, version: bytes | None = None) -> bool:
        """Removes an object, with `version` only if it still has that version; returns whether it is gone."""


def is_local(url: str | os.PathLike[str]) -> bool:
    """Whether the URL is a path on a mounted file system."""
    return storage_address.is_path(str(url))


def pattern_problem(url: str) -> str:
    """Why a directory cannot be in a bucket under this name; empty if it can be."""
    return storage_address.NO_PATTERN if re.match(storage_address.PATTERN_IN_BUCKET, url) else ""
