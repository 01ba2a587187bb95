"""What benchmarks share: parser, tables, turns, and what processes cost."""

import argparse
import importlib.metadata
import os
import platform
import resource
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

_PAGE_BYTES, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of a benchmark."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The lines of a Markdown table, each as soon as its row is there."""
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def say(line: str) -> None:
    """Prints a line and flushes it, so that an interrupted run does not lose its results."""
    print(line, flush=True)


def show(lines: Iterable[str]) -> None:
    """Prints lines, each as soon as it is there."""
    for line in lines:
        say(line)


def surroundings(*packages: str) -> str:
    """The versions of Python and of packages, and how busy the machine is."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    python = ", ".join(filter(None, (f"Python {platform.python_version()}", versions)))
    return f"{python}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def in_turns[T](cases: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """What each case returned in each round; the cases take turns, since machines change their pace."""
    found: dict[str, list[T]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(case())
    return found


def cost(
    command: Sequence[str], environ: Mapping[str, str] | None = None, *, check: bool = True
) -> tuple[float, float]:
    """Runs a command; returns the processor seconds of it and its descendants, and the seconds of the clock."""
    before, began = _children_seconds(), time.monotonic()
    subprocess.run(command, env=environ, capture_output=True, check=check)
    return _children_seconds() - before, time.monotonic() - began


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cpu_seconds(pid: int) -> float:
    """The processor time that all threads of a process have used (proc(5), /proc/pid/stat, fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mib(pid: int | str = "self") -> float:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES / 2**20
