"""Small wheels for pip, made here."""

import hashlib
import zipfile
from pathlib import Path


def wheel(folder: Path, number: int = 1, *, needs: str = "") -> str:
    """A package `gadget`; returns the line that pins it."""
    folder.mkdir(exist_ok=True)
    path = folder / f"gadget-{number}.0-py3-none-any.whl"
    about = f"Metadata-Version: 2.1\nName: gadget\nVersion: {number}.0\n" + (
        f"Requires-Dist: {needs}\n" if needs else ""
    )
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("gadget/__init__.py", f"NUMBER = {number}\n")
        file.writestr(f"gadget-{number}.0.dist-info/METADATA", about)
        file.writestr(
            f"gadget-{number}.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"gadget-{number}.0.dist-info/RECORD", "")
    return f"gadget=={number}.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
