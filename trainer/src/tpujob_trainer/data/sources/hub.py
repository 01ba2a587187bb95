"""Paths on the Hugging Face hub: a branch is resolved to a commit, which holds for the whole run."""

from __future__ import annotations

import importlib
import logging
import re
from typing import Any

logger = logging.getLogger(__name__)

COMMIT = re.compile("[0-9a-f]{40}")
_AT_COMMIT = re.compile(r"(?:(dataset|space)s/)?([^/@]+/[^/@]+)@([0-9a-f]{40})/(.+)")


def is_hub(filesystem: Any) -> bool:
    """Whether a file system of fsspec is the hub."""
    protocol = filesystem.protocol
    return "hf" in ((protocol,) if isinstance(protocol, str) else protocol)


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
