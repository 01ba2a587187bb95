"""SHA256SUMS: written as `sha256sum` does and read as `sha256sum --check` does."""

import hashlib
import re
from pathlib import Path

from tpujob_contract.whole_file import replaced

SUMS = "SHA256SUMS"
LINE = re.compile(r"^([0-9a-f]{64}) [ *](.+)$")


def sha256(file: Path) -> str:
    """The checksum of a file, in hex digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_sums(folder: Path) -> None:
    """Writes the sums of all files; called last, because a bundle with the list counts as complete."""
    sums = _sums_of(folder)
    with replaced(folder / SUMS) as unfinished:
        unfinished.write_text("".join(f"{sum_}  {name}\n" for name, sum_ in sums.items()))


def verify(folder: Path) -> list[str]:
    """A line for each file that is wrong, missing or not listed; empty if the bundle is complete and undamaged."""
    try:
        lines = [(line, LINE.match(line)) for line in (folder / SUMS).read_text().splitlines()]
    except FileNotFoundError:
        return [f"{folder}: no {SUMS}, so this is no bundle, or one that is not complete; run `tpujob bundle` again"]
    except UnicodeDecodeError as error:
        return [f"{folder / SUMS}: {error}"]
    wrong = [f"{folder / SUMS}: {line!r} is not a checksum and a path" for line, match in lines if match is None]
    expected = {match[2]: match[1] for _, match in lines if match is not None}
    found = {} if wrong else _sums_of(folder)
    for name in [] if wrong else sorted({*expected, *found}):
        if name not in found:
            wrong.append(f"{name}: missing")
        elif name not in expected:
            wrong.append(f"{name}: not in {SUMS}")
        elif expected[name] != found[name]:
            wrong.append(f"{name}: wrong checksum; expected {expected[name]}, found {found[name]}")
    return wrong


def _sums_of(folder: Path) -> dict[str, str]:
    """The sums of all files below a folder except the list itself, by relative path."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {name: sha256(folder / name) for name in files if name != SUMS}
