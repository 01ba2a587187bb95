"""Installs the files of a commit in the folder of the job's code.

The commit becomes an archive, so that the same rules apply to names, links and sizes; the stamp has the commit's id.
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
    """Writes the files of a commit to a folder; returns their number, or 0 if they are there already.

    For the other arguments see `objects_of`.

    Raises:
        CodeRefused: The commit cannot be used; the message says why.
        OSError: The server is unreachable, or the folder cannot be written.
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
