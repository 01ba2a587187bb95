"""Folders on a disk, listed with what symbolic links lead to. Fsspec's own listing skips links without a word."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fsspec.core
from fsspec.implementations.local import LocalFileSystem

from tpujob_trainer.errors import NotFoundError

_BROKEN, _LOOP = "link to nothing", "link in a loop"


def located(url: str) -> tuple[Any, str]:
    """The file system of a URL or path, and the location there; on a disk, listings follow symbolic links."""
    filesystem, location = fsspec.core.url_to_fs(url)
    return (LinkedFiles() if isinstance(filesystem, LocalFileSystem) else filesystem), location


def require_followed(entries: Iterable[dict[str, Any]], folder: str, field: str) -> None:
    """Checks that no entry of a listing is a link that cannot be followed; hidden ones do not matter.

    Raises:
        NotFoundError: one leads to nothing, or to a folder that it is in.
    """
    for entry in entries:
        name = str(entry["name"]).removeprefix(folder).lstrip("/")
        if entry.get("type") not in (_BROKEN, _LOOP) or any(part.startswith((".", "_")) for part in name.split("/")):
            continue
        target = os.readlink(entry["name"])  # noqa: PTH115 - as it is written
        if entry["type"] == _LOOP:
            raise NotFoundError(f"{field}: {name!r} is a link to {target!r}, which it is in itself; remove the link")
        raise NotFoundError(
            f"{field}: {name!r} is a link to {target!r}, which is not there; copy that file as well, or remove the link"
        )


class LinkedFiles(LocalFileSystem):
    """The local file system, in whose listings a link is of the type of the file or folder that it leads to."""

    def info(self, path: Any, **kwargs: Any) -> dict[str, Any]:
        """The entry of a path; that of a link which cannot be followed has a type of its own."""
        found: dict[str, Any] = super().info(path, **kwargs)
        if not isinstance(path, os.DirEntry) or not found["islink"]:
            return found
        try:
            found = super().info(found["name"], **kwargs)
        except OSError:
            return {**found, "type": _BROKEN}
        if found["type"] == "directory" and _is_in(found["name"]):
            return {**found, "type": _LOOP}
        return found


def _is_in(link: str) -> bool:
    """Whether a link leads to one of the folders on the way to it."""
    return Path(link).resolve() in (folder.resolve() for folder in Path(link).parents)
