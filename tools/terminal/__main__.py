"""`python -m tools.terminal`: records the README's demo and draws it; `--draw`: draws the existing recording."""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tools.terminal.picture import picture
from tools.terminal.recording import Recording, record

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "docs" / "recordings" / "demo.cast"
PICTURE = ROOT / "docs" / "images" / "demo.svg"
DATA = (sysconfig.get_path("stdlib"), ".tpujob/data/python-stdlib")
ONLY = ("--include", "*.py", "--exclude", "site-packages/*", "--exclude", "test/*")
COMMAND = ("tpujob", "run", "examples/quickstart.yaml")
"""As in `make demo`, but in a folder without earlier training."""


def main(arguments: list[str]) -> None:
    """Writes the picture and, without `--draw`, the recording."""
    if arguments != ["--draw"]:
        with tempfile.TemporaryDirectory() as folder:
            _record(Path(folder)).write(RECORDING)
    PICTURE.write_text(picture(Recording.read(RECORDING)))


def _record(folder: Path) -> Recording:
    (folder / "examples").symlink_to(ROOT / "examples")
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["tpujob", "data", "from-folder", *DATA, *ONLY], cwd=folder, env=environ, check=True)
    return record(COMMAND, folder, environ)


if __name__ == "__main__":
    main(sys.argv[1:])
