"""Opens addresses by fsspec: on a disk, listings follow symbolic links; the hub is read at one commit in a run."""

import importlib
import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fsspec.core
from fsspec.implementations.local import LocalFileSystem

from tpujob_trainer.values.errors import NotFoundError

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


logger = logging.getLogger(__name__)

COMMIT = re.compile("[0-9a-f]{40}")
_AT_COMMIT = re.compile(r"(?:(dataset|space)s/)?([^/@]+/[^/@]+)@([0-9a-f]{40})/(.+)")


def is_hub(filesystem: Any) -> bool:
    """Whether a file system of fsspec is the hub."""
    return has_protocol(filesystem, "hf")


def is_on_disk(filesystem: Any) -> bool:
    """Whether a file system of fsspec is mounted on this host."""
    return has_protocol(filesystem, "file")


def has_protocol(filesystem: Any, name: str) -> bool:
    """Whether a file system of fsspec has this among the names of its protocol."""
    protocol = filesystem.protocol
    return name in ((protocol,) if isinstance(protocol, str) else protocol)


def at_commit(filesystem: Any, location: str) -> str:
    """A path or pattern, without protocol, with its revision replaced by the commit that it refers to now.

    Raises:
        FileNotFoundError: there is no such repository or revision.
    """
    found = filesystem.resolve_path(location)
    if not hasattr(found, "repo_id") or COMMIT.fullmatch(found.revision):
        return location
    hub: Any = importlib.import_module("huggingface_hub")
    api = hub.HfApi(endpoint=filesystem.endpoint, token=filesystem.token)
    commit = api.repo_info(found.repo_id, repo_type=found.repo_type, revision=found.revision).sha
    logger.info("The run reads one commit: %s revision=%s commit=%s", found.repo_id, found.revision, commit)
    prefix = hub.constants.REPO_TYPES_URL_PREFIXES.get(found.repo_type, "")
    return f"{prefix}{found.repo_id}@{commit}/{found.path_in_repo}".rstrip("/")


def is_at_commit(filesystem: Any, location: str) -> bool:
    """Whether a path is that of a file in one commit, which cannot change."""
    return is_hub(filesystem) and _AT_COMMIT.fullmatch(location) is not None


def url_of(filesystem: Any, location: str) -> str:
    """The URL of a file; without a request to the hub if the path names a commit."""
    match = _AT_COMMIT.fullmatch(location)
    if match is None:
        return str(filesystem.url(location))
    kind, repository, commit, path = match.groups()
    hub: Any = importlib.import_module("huggingface_hub")
    return str(hub.hf_hub_url(repository, path, repo_type=kind, revision=commit, endpoint=filesystem.endpoint))
