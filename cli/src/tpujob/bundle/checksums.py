"""SHA256SUMS: written as `sha256sum` does and read as `sha256sum --check` does."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

SUMS = "SHA256SUMS"
LINE = re.compile(r"^([0-9a-f]{64}) [ *](.+)$")


def sha256(file: Path) -> str:
    """The checksum of a file, in hex digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def files_of(folder: Path) -> list[str]:
    """The relative paths of all files below a folder except the list of sums, sorted."""
    files = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in files if name != SUMS)


def write_sums(folder: Path) -> None:
    """Writes the sums of all files; called last, because a bundle with the list counts as complete."""
    lines = [f"{sha256(folder / name)}  {name}\n" for name in files_of(folder)]
    unfinished = folder / f".{SUMS}"
    unfinished.write_text("".join(lines))
    unfinished.replace(folder / SUMS)


def read_sums(text: str) -> dict[str, str]:
    """Sums by path.

    Raises:
        ValueError: A line is not a checksum and a path.
    """
    sums = {}
    for line in text.splitlines():
        match = LINE.match(line)
        if match is None:
            raise ValueError(f"{line!r} is not a checksum and a path")
        sums[match[2]] = match[1]
    return sums


def differences(expected: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """A line for every file that is wrong, missing or not listed; empty if there is none."""
    lines = []
    for name in sorted({*expected, *found}):
        if name not in found:
            lines.append(f"{name}: missing")
        elif name not in expected:
            lines.append(f"{name}: not in {SUMS}")
        elif expected[name] != found[name]:
            lines.append(f"{name}: wrong checksum; expected {expected[name]}, found {found[name]}")
    return lines


def verify(folder: Path) -> list[str]:
    """A line for each problem of a bundle; empty if it is complete and undamaged."""
    try:
        expected = read_sums((folder / SUMS).read_text())
    except FileNotFoundError:
        return [f"{folder}: no {SUMS}, so this is no bundle, or one that is not complete; run `tpujob bundle` again"]
    except (ValueError, UnicodeDecodeError) as error:
        return [f"{folder / SUMS}: {error}"]
    return differences(expected, {name: sha256(folder / name) for name in files_of(folder)})
