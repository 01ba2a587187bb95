"""Reproducible archives: the chart as Helm packs it, and the sources."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

LEFT_OUT = {"__pycache__", ".DS_Store"}
LEFT_OUT_ENDINGS = (".pyc", ".egg-info")


def pack(archive: Path, top: str, folder: Path, names: Iterable[str]) -> None:
    """Writes a .tar.gz: the same files give the same bytes.

    Args:
        archive: The file to write.
        top: The archive's top folder.
        folder: Where the files are.
        names: Files, and folders that are packed with all files below them.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in sorted({file for name in names for file in _files(folder / name)}):
            entry = tarfile.TarInfo(f"{top}/{file.relative_to(folder)}")
            data = file.read_bytes()
            entry.size, entry.mode = len(data), 0o755 if file.stat().st_mode & 0o100 else 0o644
            tar.addfile(entry, io.BytesIO(data))
    unfinished = archive.with_name(f".{archive.name}")
    unfinished.write_bytes(gzip.compress(content.getvalue(), mtime=0))
    unfinished.replace(archive)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [
        file
        for file in path.rglob("*")
        if file.is_file()
        and not LEFT_OUT & set(file.relative_to(path).parts)
        and not any(part.endswith(LEFT_OUT_ENDINGS) for part in file.relative_to(path).parts)
    ]
