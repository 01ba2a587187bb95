"""The wheels of this checkout, and environments that have them and no checkout."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"


def wheels(folder: Path) -> Path:
    """Makes the wheels of all packages in a folder, and returns it."""
    subprocess.run(["make", "wheels", f"DIST={folder}"], cwd=ROOT, check=True, capture_output=True)
    return folder


def installed(folder: Path, dist: Path, requirement: str) -> dict[str, str]:
    """An environment of the test's own, with the locked versions, as what a program in it inherits."""
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True)
    # The locked versions: another day's would be another test.
    options: list[str | Path] = [
        "--python",
        folder / "venv",
        "--find-links",
        dist,
        "--constraint",
        ROOT / "requirements" / "run.txt",
    ]
    subprocess.run([UV, "pip", "install", "--quiet", *options, requirement], check=True)
    return {"HOME": str(folder), "PATH": f"{folder / 'venv' / 'bin'}:/usr/bin:/bin"}
