"""The files of a commit, as git would check them out; the folder and its index are not changed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tpujob.code.files import CodeFiles, checked_files, git
from tpujob.errors import CommandError


@contextmanager
def files_of_commit(folder: Path, revision: str) -> Iterator[CodeFiles]:
    """The files of a folder in a commit, in a temporary folder until the block ends.

    Args:
        folder: In a git repository.
        revision: A commit, a tag or a branch of it.

    Raises:
        CommandError: there is no such commit, or it has an entry that cannot be packed.
    """
    commit = _commit(folder, revision)
    below = os.fsdecode(git(folder, "rev-parse", "--show-prefix").strip())
    with tempfile.TemporaryDirectory(prefix="tpujob-code-") as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch, "index"))}
        git(folder, "read-tree", commit, variables=index)
        listed = git(folder, "ls-files", "-z", variables=index)
        names = tuple(sorted(os.fsdecode(name) for name in listed.split(b"\0") if name))
        git(folder, "checkout-index", "--all", "--quiet", f"--prefix={scratch}/files/", variables=index)
        there = Path(scratch, "files", below)
        there.mkdir(parents=True, exist_ok=True)
        yield checked_files(there, names, shown=f"{folder} at {commit[:12]}", commit=commit)


def _commit(folder: Path, revision: str) -> str:
    if not folder.is_dir():
        raise CommandError(f"--code: {folder} is no folder; name the folder of your code")
    found = git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", may_fail=True)
    if not found:
        git(folder, "rev-parse")
        raise CommandError(
            f"--commit: {revision!r} is no commit of the repository of {folder}; `git fetch` may bring it"
        )
    return found.decode().strip()
