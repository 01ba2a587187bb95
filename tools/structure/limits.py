"""The limits of the structure, in `limits.toml`: a worse structure fails `make lint`, a better one can be recorded.

Imports between rooms are listed one by one, so that a new one is reported by name; the rest are numbers. Lines have
steps of STEP, so that a small change needs no new limit, and a large one is visible in the review.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.structure.measured import Structure

FILE = Path(__file__).with_name("limits.toml")
STEP = 500


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The largest values that `make lint` accepts."""

    cycles: int
    fields_without_example: int
    long_functions: int
    long_files: int
    source_lines: int
    tools_lines: int
    tests_lines: int
    arrows: list[str]


def reached(structure: Structure) -> Limits:
    """The tightest limits that this structure meets."""
    return Limits(
        cycles=len(structure.cycles),
        fields_without_example=len(structure.fields_without_example),
        long_functions=len(structure.long_functions),
        long_files=len(structure.long_files),
        source_lines=rounded_up(structure.source_lines),
        tools_lines=rounded_up(structure.lines["tools"]),
        tests_lines=rounded_up(structure.lines["tests"]),
        arrows=[str(arrow) for arrow in structure.arrows],
    )


def rounded_up(lines: int) -> int:
    return -(-lines // STEP) * STEP


def read() -> Limits:
    """The limits in `limits.toml`."""
    return Limits(**tomllib.loads(FILE.read_text()))


def written(limits: Limits) -> str:
    """The text of `limits.toml`."""
    numbers = [f"{name} = {value}" for name, value in vars(limits).items() if isinstance(value, int)]
    arrows = [f'    "{arrow}",' for arrow in limits.arrows]
    return "\n".join(
        [
            "# Written by `make structure KEEP=1`; `make lint` refuses what is worse.",
            *numbers,
            "arrows = [",
            *arrows,
            "]\n",
        ]
    )


def broken(now: Limits, limits: Limits) -> Iterator[str]:
    """A sentence for each value that exceeds the limits."""
    yield from (f"new import between rooms: {arrow}" for arrow in sorted(set(now.arrows) - set(limits.arrows)))
    for name, limit in vars(limits).items():
        value = getattr(now, name)
        if isinstance(limit, int) and value > limit:
            yield f"{name.replace('_', ' ')}: {value}, the limit is {limit}"
