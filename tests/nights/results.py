"""Results of nights in a file, one line of JSON each, so that many can be played over days and none twice.

The file is replaced as a whole: a program that is killed while it writes leaves the lines of before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HEAD = (
    "| seed | minutes, jobs | blows that fell | attempts that failed | writes | load | violations |",
    "|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of one night."""

    seed: int
    minutes: float
    jobs: int
    blows: int
    """That the seed has."""
    fell: int
    """Those that found something to hit."""
    failed_attempts: int
    writes: int
    """Of the operator, to all jobs."""
    load: float
    """Of the machine at its end, over 15 minutes."""
    broken: tuple[str, ...]


def read(file: Path) -> list[Result]:
    """The results in a file, in their order; none if there is no file.

    Raises:
        ValueError: a line is not a result.
    """
    lines = file.read_text().splitlines() if file.exists() else []
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            fields = json.loads(line)
            found.append(Result(**{**fields, "broken": tuple(fields["broken"])}))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{file}:{number}: no result of a night: {error}; delete the line") from error
    return found


def append(file: Path, result: Result) -> None:
    """Adds a result."""
    written = file.with_name(f"{file.name}.new")
    before = file.read_text() if file.exists() else ""
    written.write_text(f"{before}{json.dumps(asdict(result))}\n")
    written.replace(file)


def left(seeds: Iterable[int], results: Iterable[Result], *, minutes: float, jobs: int) -> list[int]:
    """The seeds that no night of this length and with so many jobs was played for."""
    played = {result.seed for result in results if (result.minutes, result.jobs) == (minutes, jobs)}
    return [seed for seed in seeds if seed not in played]


def table(results: Iterable[Result]) -> Iterator[str]:
    """The lines of a table in Markdown, in the order of the seeds."""
    yield from HEAD
    for each in sorted(results, key=lambda result: (result.seed, result.minutes, result.jobs)):
        night = f"| {each.seed} | {each.minutes:g}, {each.jobs} | {each.fell} of {each.blows} "
        yield f"{night}| {each.failed_attempts} | {each.writes} | {each.load:.0f} | {len(each.broken) or 'none'} |"
