"""Writes the files of a commit as an archive, and verifies the id of each object.

An id is the SHA-1 of an object's type, length and content (git-scm.com/book/en/v2/Git-Internals-Git-Objects), and the
content has the ids of the objects below it: objects with the right ids are those of the commit, regardless of sender.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from dulwich.errors import ObjectFormatException
from dulwich.object_store import BaseObjectStore
from dulwich.objects import Commit, ObjectID, ShaFile, Tree

from tpujob_contract import ExitCode
from tpujob_contract.code import MAX_FILES, MAX_UNPACKED_BYTES
from tpujob_launcher.code.archive import CodeRefused

_SUBMODULE = 0o160000
_PROGRAM, _FILE = 0o755, 0o644


def write_archive(objects: BaseObjectStore, commit: str, target: Path) -> None:
    """Writes the files of a commit to `target`, as a .tar.gz; does not check their names, which `unpack` does.

    Raises:
        CodeRefused: The commit, or one of its objects, is missing or has another id; or the files exceed a limit.
    """
    found = _checked(objects, commit.encode(), "the commit")
    if not isinstance(found, Commit):
        raise CodeRefused(
            f"spec.code.commit: {commit} is a {found.type_name.decode()}, not a commit; take what "
            f"`git rev-parse {commit[:12]}^{{commit}}` prints"
        )
    size = 0
    with tarfile.open(target, "w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as tar:
        for name, mode, content in _files(objects, found.tree):
            size += len(content)
            if size > MAX_UNPACKED_BYTES:
                raise CodeRefused(
                    f"spec.code.repository: the commit holds more than {MAX_UNPACKED_BYTES // 1024**2} MiB; put data "
                    "into the bucket"
                )
            _add(tar, name, mode, content)


def _files(objects: BaseObjectStore, root: ObjectID) -> Iterator[tuple[str, int, bytes]]:
    """Path, mode and content of each file and link."""
    waiting, count = [("", root)], 0
    while waiting:
        folder, sha = waiting.pop()
        tree = _checked(objects, sha, folder or "the root folder")
        if not isinstance(tree, Tree):
            raise _broken(f"{folder!r} is no folder")
        for entry in tree.items():
            count += 1
            if count > MAX_FILES:
                raise CodeRefused(f"spec.code.repository: the commit has more than {MAX_FILES} entries")
            name = folder + os.fsdecode(entry.path)
            if stat.S_ISDIR(entry.mode):
                waiting.append((f"{name}/", entry.sha))
            elif stat.S_IFMT(entry.mode) == _SUBMODULE:
                raise CodeRefused(
                    f"spec.code.repository: {name!r} is a repository of its own (a submodule), which is not fetched; "
                    "install it in the image, or copy its files"
                )
            else:
                yield name, entry.mode, _checked(objects, entry.sha, name).as_raw_string()


def _checked(objects: BaseObjectStore, sha: ObjectID | bytes, what: str) -> ShaFile:
    """An object whose content matches the requested id."""
    try:
        kind, content = objects.get_raw(ObjectID(sha))
        found = ShaFile.from_raw_string(kind, content)
    except KeyError as error:
        raise CodeRefused(
            f"spec.code.commit: the repository has no object {sha.decode()} ({what}); push it, or correct the id",
            ExitCode.NOT_FOUND,
        ) from error
    except (ObjectFormatException, ValueError) as error:
        raise _broken(f"{what} cannot be read ({error})") from error
    header = b"%s %d\0" % (found.type_name, len(content))
    digest = hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
    if digest != sha.decode():
        raise _broken(f"{what} has id {digest}, and {sha.decode()} is expected")
    return found


def _add(tar: tarfile.TarFile, name: str, mode: int, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    if stat.S_ISLNK(mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.fsdecode(content)
        tar.addfile(info)
        return
    info.size = len(content)
    info.mode = _PROGRAM if mode & 0o100 else _FILE
    tar.addfile(info, io.BytesIO(content))


def _broken(why: str) -> CodeRefused:
    return CodeRefused(f"spec.code.repository: {why}; the repository is damaged, or was tampered with")
