"""The archive of a job, downloaded, verified and unpacked: `python -m tpujob_contract.code.install ARCHIVE SHA256 DIR`.

What the init container does, and `tpujob run` before it starts the processes. Doing it twice is harmless: the stamp is
written last, and a folder without the right one is emptied first.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import List, Mapping, Optional

from tpujob_contract.code import STAMP
from tpujob_contract.code.archive import CodeRefused, unpack
from tpujob_contract.code.download import Token, download


def install(
    archive: str,
    sha256: str,
    folder: Path,
    *,
    environ: Mapping[str, str] = os.environ,
    token: Optional[Token] = None,
) -> int:
    """Puts the files of an archive into a folder; returns their number, 0 when they are there already.

    Raises:
        CodeRefused: the archive cannot be used; says why.
        OSError: storage is out of reach, or the folder cannot be written.
    """
    if installed(folder) == sha256:
        return 0
    emptied(folder)
    packed = folder / f"{STAMP}.tar.gz"
    download(archive, sha256, packed, environ=environ, token=token)
    count = unpack(packed, folder)
    packed.unlink()
    (folder / STAMP).write_text(sha256)
    return count


def installed(folder: Path) -> Optional[str]:
    """The digest of the archive, or the commit, that was unpacked here; None when none was, or not to its end."""
    try:
        return (folder / STAMP).read_text()
    except FileNotFoundError:
        return None


def emptied(folder: Path) -> None:
    """Makes the folder, with nothing in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def main(arguments: List[str]) -> int:
    """The exit code: 0, 77 or 78 for what another try would not change, 1 for storage out of reach."""
    if len(arguments) != 3:
        sys.exit("usage: python -m tpujob_contract.code.install ARCHIVE SHA256 DIRECTORY")
    archive, sha256, folder = arguments
    try:
        count = install(archive, sha256, Path(folder))
    except (CodeRefused, OSError) as error:
        sys.stderr.write(f"tpujob code: {error}\n")
        return error.exit_code if isinstance(error, CodeRefused) else 1
    sys.stderr.write(f"tpujob code: {count} files of {archive}, digest {sha256[:12]}, in {folder}\n")
    return 0


if __name__ == "__main__":
    # The first process of a container is not ended by a signal that it does not handle, but killed after the grace.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
