"""Downloads, verifies and unpacks a job's archive: `python -m tpujob_contract.code.install ARCHIVE SHA256 DIR`.

The init container does that, and `tpujob run` before it starts the processes. It may be repeated: the stamp is written
last, and a folder without the right stamp is emptied first.
"""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Callable, List, Mapping, Optional

from tpujob_contract.job_code import STAMP
from tpujob_launcher.code.archive import CodeRefused, unpack
from tpujob_launcher.code.download import Token, download
from tpujob_launcher.code.patience import TIMES, times_of


def install(
    archive: str,
    sha256: str,
    folder: Path,
    *,
    environ: Mapping[str, str] = os.environ,
    token: Optional[Token] = None,
    times: int = TIMES,
) -> int:
    """Writes the files of an archive to a folder; returns their number, or 0 if they are there already.

    `times` limits the requests to storage that does not answer.

    Raises:
        CodeRefused: The archive cannot be used; the message says why.
        OSError: Storage is unreachable, or the folder cannot be written.
    """
    if installed(folder) == sha256:
        return 0
    emptied(folder)
    packed = folder / f"{STAMP}.tar.gz"
    download(archive, sha256, packed, environ=environ, token=token, times=times)
    count = unpack(packed, folder)
    packed.unlink()
    (folder / STAMP).write_text(sha256)
    return count


def installed(folder: Path) -> Optional[str]:
    """The digest of the archive, or the commit, that was unpacked here; None: none was, or not completely."""
    try:
        return (folder / STAMP).read_text()
    except FileNotFoundError:
        return None


def emptied(folder: Path) -> None:
    """Creates the folder if necessary, and empties it."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def as_program(install_files: Callable[[], int], source: str, folder: Path) -> int:
    """Installs, reports the result on standard error, and returns the exit code of an init container.

    The code is 0, 77 or 78 for an error that a retry would not change, or 1 if storage or a server is unreachable.
    """
    try:
        count = install_files()
    except (CodeRefused, OSError) as error:
        sys.stderr.write(f"tpujob code: {error}\n")
        return error.exit_code if isinstance(error, CodeRefused) else 1
    sys.stderr.write(f"tpujob code: {count} files of {source}, in {folder}\n")
    return 0


def end_when_asked() -> None:
    """Makes SIGTERM end this program: process 1 of a container ignores it by default, and is killed after its grace."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def main(arguments: List[str]) -> int:
    """Runs the init container of an archive; returns its exit code."""
    if len(arguments) != 3:
        sys.exit("usage: python -m tpujob_contract.code.install ARCHIVE SHA256 DIRECTORY")
    archive, sha256, folder = arguments[0], arguments[1], Path(arguments[2])
    times = times_of(os.environ)
    return as_program(lambda: install(archive, sha256, folder, times=times), f"{archive}, digest {sha256[:12]}", folder)


if __name__ == "__main__":
    end_when_asked()
    sys.exit(main(sys.argv[1:]))
