"""Small files that are seen whole or not at all, on local paths and on gs://."""

from __future__ import annotations

import secrets

import fsspec
from etils import epath


def replace_text(path: epath.PathLike, text: str) -> None:
    """Writes a file in the place of the one that may be there. Objects of a bucket appear whole by themselves."""
    target = epath.Path(path)
    if is_local(target):
        beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        beside.write_text(text)
        beside.replace(target)
    else:
        target.write_text(text)


def create_text(path: epath.PathLike, text: str) -> bool:
    """Writes a file unless there is one; whether it was written. Of several that try at once, one succeeds."""
    name = str(path)
    files, inner = fsspec.core.url_to_fs(name)
    try:
        files.pipe_file(inner, text.encode(), mode="create")
    except FileExistsError:
        return False
    return True


def is_local(path: epath.PathLike) -> bool:
    """Whether the path is on a mounted file system."""
    return "://" not in str(path)
