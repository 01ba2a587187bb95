"""Results of nights in a file, one line of JSON each, so that many can be played over days and none twice.

The file that is kept is benchmarks/nights.jsonl, and benchmarks/README.md has its table. A line is added by one write,
so two programs may add to one file.
"""

import json
import resource
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.localcluster import binaries

REPOSITORY = Path(__file__).parents[2]
FILE = REPOSITORY / "benchmarks" / "nights.jsonl"
README = REPOSITORY / "benchmarks" / "README.md"
BEGIN, END = "<!-- table: make nights OUT=benchmarks/nights.jsonl -->", "<!-- end of nights -->"
CODE = ("operator", "resource", "contract", "charts/tpujob-operator/crd", "tests", "tools")
"""What decides how a night goes."""
PROGRAMS = {"kube-apiserver": "Kubernetes", "etcd": "etcd", "jobset": "JobSet", "kueue": "Kueue"}
HEAD = (
    "| seed | minutes, jobs | blows that fell | attempts that failed | writes | processor | load | code | violations |",
    "|---|---|---|---|---|---|---|---|---|",
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
    processor_seconds: float = 0.0
    """Of all programs together, from their start to their end."""
    code: str = ""
    """The commit that was played, with `+` where files were changed since; empty where there is no repository."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of the other programs."""
    broken: tuple[str, ...] = ()


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
    with file.open("ab", buffering=0) as lines:
        lines.write(f"{json.dumps(asdict(result))}\n".encode())


def left(seeds: Iterable[int], results: Iterable[Result], *, minutes: float, jobs: int) -> list[int]:
    """The seeds that no night of this length and with so many jobs was played for."""
    played = {result.seed for result in results if (result.minutes, result.jobs) == (minutes, jobs)}
    return [seed for seed in seeds if seed not in played]


def table(results: Iterable[Result]) -> Iterator[str]:
    """A sentence and the lines of a table in Markdown, in the order of the seeds."""
    nights = sorted(results, key=lambda result: (result.seed, result.minutes, result.jobs))
    blows = f"{sum(each.fell for each in nights):,} of {sum(each.blows for each in nights):,} blows fell"
    rest = f"{sum(each.failed_attempts for each in nights):,} attempts failed"
    writes = f"{sum(each.writes for each in nights):,} writes"
    violations = sum(len(each.broken) for each in nights) or "no"
    yield f"{len(nights)} nights: {blows}, {rest}, {writes}; {violations} violations."
    yield from dict.fromkeys(_listed(each.versions) for each in nights if each.versions)
    yield ""
    yield from HEAD
    for each in nights:
        night = f"| {each.seed} | {each.minutes:g}, {each.jobs} | {each.fell} of {each.blows} "
        counts = f"| {each.failed_attempts} | {each.writes:,} | {each.processor_seconds:.0f} s | {each.load:.0f} "
        yield f"{night}{counts}| {each.code} | {len(each.broken) or 'none'} |"


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version.removeprefix('v')}" for name, version in versions.items()) + "."


def with_table(page: str, results: Iterable[Result]) -> str:
    """A page with the table of these results instead of the one it has."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{README} has no lines {BEGIN!r} and {END!r} to write the table of nights between")
    return "\n".join([head + begin, "", *table(results), "", end + tail])


def write_table() -> None:
    """Has the README show the file that is kept."""
    README.write_text(with_table(README.read_text(), read(FILE)))


def versions() -> dict[str, str]:
    """Of the programs that a night is played with, by the names that people know."""
    return {said: binaries.PROGRAMS[name].version for name, said in PROGRAMS.items()}


def code() -> str:
    """The commit of this checkout, and whether code was changed since."""

    def git(*words: str) -> str:
        return subprocess.run(
            ("git", *words), cwd=REPOSITORY, check=True, capture_output=True, text=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *CODE)
        return git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def processor_seconds() -> float:
    """Taken until now by this program and by those that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
