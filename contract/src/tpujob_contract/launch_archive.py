"""The launcher as one file that any Python from 3.9 on runs: `python -m tpujob_contract.launch_archive FILE`.

An init container writes it to an emptyDir, from where the main container, somebody else's image, starts it.
"""

from __future__ import annotations

import importlib.resources
import os
import sys
import zipfile
from pathlib import Path

_MAIN = "import sys\n\nfrom tpujob_contract.launch import main\n\nsys.exit(main())\n"


def write_launcher(path: Path) -> None:
    """Writes the archive: the same bytes from the same sources, whole or not at all, readable for every user.

    Raises:
        OSError: The folder is not there or not writable.
    """
    sources = importlib.resources.files("tpujob_contract")
    modules = sorted((m for m in sources.iterdir() if m.name.endswith(".py")), key=lambda m: m.name)
    # Beside the target, so that the last step is a rename: an init container may be run again while the file is in use.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(unfinished, "w") as archive:
            # ZipInfo's own date is constant; stored, for a compressor's output depends on its version.
            archive.writestr(zipfile.ZipInfo("__main__.py"), _MAIN)
            for module in modules:
                archive.writestr(zipfile.ZipInfo(f"tpujob_contract/{module.name}"), module.read_bytes())
        unfinished.chmod(0o644)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def main() -> None:
    """Writes the archive to the path on the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tpujob_contract.launch_archive FILE")
    write_launcher(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
