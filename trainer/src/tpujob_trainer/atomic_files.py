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
        # In one request: a file object's failed upload leaves a cycle that crashes Python before 3.12.7 when it is
        # collected (https://github.com/python/cpython/issues/77894).
        _files(target).pipe_file(str(path), text.encode())


def create_text(path: epath.PathLike, text: str) -> bool:
    """Writes a file unless there is one; whether it was written. Of several that try at once, one succeeds."""
    try:
        _files(path).pipe_file(str(path), text.encode(), mode="create")
    except FileExistsError:
        return False
    return True


def is_local(path: epath.PathLike) -> bool:
    """Whether the path is on a mounted file system."""
    return "://" not in str(path)


def forget_listings(path: epath.PathLike) -> None:
    """Has storage asked anew for what is there: others write to a bucket as well."""
    if not is_local(path):
        _files(path).invalidate_cache()


def _files(path: epath.PathLike) -> fsspec.AbstractFileSystem:
    """The file system of a path; of a bucket the very one that epath uses, which remembers listings."""
    if str(path).startswith("gs://"):
        return fsspec.filesystem("gcs", finalize_on_close=True)
    return fsspec.core.url_to_fs(str(path))[0]
