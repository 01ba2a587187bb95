"""Writes the launcher as one file that Python 3.9 or newer can run: `python -m tpujob_contract.launch_archive FILE`.

An init container writes it to an emptyDir, from which the main container, a user's image, starts it.
"""

from __future__ import annotations

import importlib.resources
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, Tuple

from tpujob_contract.whole_file import replaced

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_MAIN = "import sys\n\nfrom tpujob_launcher.main import main\n\nsys.exit(main())\n"
_PACKAGES = ("tpujob_contract", "tpujob_launcher")


def write_launcher(path: Path) -> None:
    """Writes the archive atomically, reproducibly from the same sources, and readable for every user.

    Raises:
        OSError: The folder does not exist or is not writable.
    """
    modules = sorted(module for name in _PACKAGES for module in _modules(importlib.resources.files(name), name))
    # An init container may run again while the file is in use.
    with replaced(path) as unfinished:
        with zipfile.ZipFile(unfinished, "w") as archive:
            # ZipInfo's default date is constant; not compressed, because a compressor's output depends on its version.
            archive.writestr(zipfile.ZipInfo("__main__.py"), _MAIN)
            for name, content in modules:
                archive.writestr(zipfile.ZipInfo(name), content)
        unfinished.chmod(0o644)


def _modules(folder: Traversable, name: str) -> Iterator[Tuple[str, bytes]]:
    """Path in the archive and content of every Python file under the folder."""
    for entry in folder.iterdir():
        path = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from _modules(entry, path)
        elif entry.name.endswith(".py"):
            yield path, entry.read_bytes()


def main() -> None:
    """Writes the archive to the path on the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tpujob_contract.launch_archive FILE")
    write_launcher(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
