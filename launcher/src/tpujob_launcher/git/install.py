"""The files of a commit in the folder of the job's code.

From there on it is an archive like any other: the same rules for names, links and sizes, and the same stamp, with the
commit in it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tpujob_contract.code import STAMP
from tpujob_launcher.code.archive import unpack
from tpujob_launcher.code.install import emptied, installed
from tpujob_launcher.code.patience import TIMES
from tpujob_launcher.git.fetch import objects_of
from tpujob_launcher.git.tree import write_archive


def install_commit(
    repository: str, commit: str, folder: Path, *, times: int = TIMES, pause_seconds: float = 1.0
) -> int:
    """Puts the files of a commit into a folder; returns their number, 0 when they are there already.

    Repository, commit, times and pauses are as `objects_of` takes them.

    Raises:
        CodeRefused: the commit cannot be used; says why.
        OSError: the server is out of reach, or the folder cannot be written.
    """
    if installed(folder) == commit:
        return 0
    emptied(folder)
    scratch, packed = folder / f"{STAMP}.git", folder / f"{STAMP}.tar.gz"
    try:
        with objects_of(repository, commit, scratch, times=times, pause_seconds=pause_seconds) as objects:
            write_archive(objects, commit, packed)
        shutil.rmtree(scratch, ignore_errors=True)
        count = unpack(packed, folder, field="spec.code.repository")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        packed.unlink(missing_ok=True)
    (folder / STAMP).write_text(commit)
    return count
