"""The limits of the structure, in `limits.toml`: figures that only fall, unless a commit gives a reason.

Lines have steps of STEP, so that a small change needs no new limit, and a large one is visible in the review. A commit
that raises a figure writes why behind it; `make structure KEEP=1` lowers figures, and drops the reasons of those.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.structure.measured import Structure

FILE = Path(__file__).with_name("limits.toml")
STEP = 500

type Figures = Mapping[str, int]


def reached(structure: Structure) -> Figures:
    """The tightest limits that this structure meets."""
    lines = {"source": structure.source_lines} | {
        name: structure.lines[name] for name in ("tests", "tools", "benchmarks")
    }
    return {f"{name}_lines": -(-count // STEP) * STEP for name, count in lines.items()} | {
        "arrows": len(structure.arrows),
        "cycles": len(structure.cycles),
        "long_functions": len(structure.long_functions),
        "long_files": len(structure.long_files),
        "fields_without_example": len(structure.fields_without_example),
    }


def read(text: str) -> Figures:
    """The limits in a text as that of `limits.toml`."""
    return {name: int(figure) for name, figure in re.findall(r"(?m)^(\w+) = (\d+)", text)}


def lowered(text: str, now: Figures) -> str:
    """The text with every figure that fell; a figure that rose stays as it is."""
    for name, limit in read(text).items():
        if now[name] < limit:
            text = re.sub(rf"(?m)^{name} = .*$", f"{name} = {now[name]}", text)
    return text


def broken(now: Figures, limits: Figures) -> Iterator[str]:
    """A sentence for each value that exceeds the limits."""
    for name, value in now.items():
        if value > limits[name]:
            yield f"{name.replace('_', ' ')}: {value}, the limit is {limits[name]}"


def unexplained(text: str, before: str) -> Iterator[str]:
    """A sentence for each figure that is higher than before and has no new reason behind it."""
    old, reasons_before, reasons = read(before), _reasons(before), _reasons(text)
    for name, limit in read(text).items():
        if limit > old.get(name, limit) and reasons.get(name, "") in ("", reasons_before.get(name)):
            yield f"{name.replace('_', ' ')}: raised from {old[name]} to {limit} without a reason behind the figure"


def _reasons(text: str) -> dict[str, str]:
    """The comments behind the figures."""
    return dict(re.findall(r"(?m)^(\w+) = \d+ +# *(.+)$", text))


def before(file: Path = FILE) -> str | None:
    """The file before its last change, which may be uncommitted; None: git has no earlier state of it."""
    committed = _git(file, "show", f"HEAD:./{file.name}")
    if committed != file.read_text():
        return committed
    changed = (_git(file, "log", "-1", "--format=%H", "--", file.name) or "").strip()
    return _git(file, "show", f"{changed}^:./{file.name}") if changed else None


def _git(file: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=file.parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
