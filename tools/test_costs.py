"""What tests cost, in seconds of processor: measured where they run, summed by folder, compared with what is kept.

`tests/conftest.py` attaches to each report what this process and its ended children used since the report before it.
tests/costs.toml keeps the last figures by file; KEEP=1 replaces those of the files that were run.
"""

import json
import resource
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PROPERTY = "processor_seconds"
FILE = Path(__file__).parents[1] / "tests" / "costs.toml"
HEAD = "# Seconds of processor of the tests of each file; `make test KEEP=1` and `make scenes KEEP=1` write it.\n"
LEAST_KEPT = 1.0
DEAREST = 10
DEARER = 1.25
"""A folder that costs so many times what is kept is named."""
LEAST_NAMED = 10.0
"""Seconds of a folder that is named: less than that is noise."""

Costs = dict[str, float]


def used() -> float:
    """Seconds of processor of this process and of its children that have ended."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


class Account:
    """A plugin of pytest that sums what its tests cost."""

    def __init__(self) -> None:
        self.tests: defaultdict[str, float] = defaultdict(float)
        """Seconds by id of a test."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a phase of a test."""
        self.tests[report.nodeid] += sum(
            float(str(value)) for name, value in report.user_properties if name == PROPERTY
        )

    @property
    def files(self) -> Costs:
        """Seconds by file."""
        return by_file(self.tests)


def by_file(tests: Mapping[str, float]) -> Costs:
    """Seconds by file."""
    found: Costs = {}
    for test, seconds in tests.items():
        file = test.partition("::")[0]
        found[file] = found.get(file, 0.0) + seconds
    return found


def kept() -> Costs:
    """The figures of tests/costs.toml."""
    return tomllib.loads(FILE.read_text()) if FILE.exists() else {}


def keep(files: Costs) -> None:
    """Replaces the figures of these files, and drops those of files that are gone."""
    now = {**{file: cost for file, cost in kept().items() if (FILE.parents[1] / file).exists()}, **files}
    lines = [f"{json.dumps(file)} = {cost:.0f}\n" for file, cost in sorted(now.items()) if cost >= LEAST_KEPT]
    FILE.write_text(HEAD + "".join(lines))


def table(tests: Mapping[str, float], before: Costs) -> Iterator[str]:
    """Lines: folders with tests and seconds, the dearest tests, and which folders got dearer."""
    number: Counter[str] = Counter()
    seconds: Costs = {}
    for test, cost in tests.items():
        number[folder(test)] += 1
        seconds[folder(test)] = seconds.get(folder(test), 0.0) + cost
    once: Costs = {}
    for file, cost in by_file(tests).items():
        # Of a file that is not kept it is known that it cost less than what is kept.
        once[folder(file)] = once.get(folder(file), 0.0) + before.get(file, min(cost, LEAST_KEPT))
    yield f"{'tests in':<32} {'tests':>6} {'seconds of processor':>21} {'before':>7}"
    for name in sorted(seconds, key=lambda name: -seconds[name]):
        mark = "  dearer" if is_dearer(seconds[name], once[name]) else ""
        yield f"{name:<32} {number[name]:>6} {seconds[name]:>21.0f} {once[name]:>7.0f}{mark}"
    yield f"{'all':<32} {number.total():>6} {sum(seconds.values()):>21.0f} {sum(once.values()):>7.0f}"
    yield "the dearest:"
    for test in sorted(tests, key=lambda test: -tests[test])[:DEAREST]:
        yield f"{tests[test]:>6.0f} s  {test}"


def is_dearer(now: float, before: float) -> bool:
    """Whether a folder costs more than a quarter more than what is kept of it."""
    return now >= LEAST_NAMED and now > DEARER * before


def folder(test: str) -> str:
    """The room of a test or of a file: two levels below tests/, e.g. `trainer/model`."""
    return "/".join(Path(test.partition("::")[0]).parent.parts[1:3]) or "."
