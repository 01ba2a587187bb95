"""Rounds of random faults at random moments, and what these cost: the loop of `random_faults` and `random_pod_faults`.

A round is one job: a kind of program, some processes, restarts in place or not. Faults come from outside, one after
another; after each, and at the end, what must hold is checked.
"""

import dataclasses
import itertools
import queue
import random
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.common import parser, show, table
from tests.multiprocess.program_faults import PAGE, write_between
from tools.localcluster.control_plane import CommandError
from tools.localcluster.waiting import wait_for

PATIENCE_SECONDS = 400.0
MOST_RESTARTS = 1000
"""Of a job with restarts in place."""


@dataclasses.dataclass(frozen=True)
class Struck:
    """One fault, and its effect."""

    fault: str
    is_in_place: bool
    """Whether the others are still in the same containers, or pods."""
    seconds: float
    """From the fault to the next finished step."""
    repeated_steps: int


class Broken(Exception):  # noqa: N818 - a finding, not a fault of this program
    """An expectation does not hold."""


class Round(ABC):
    """One job, from its start to its end."""

    faults: tuple[str, ...] = ()
    most_faults = 4
    """The pause before a restart grows with their number."""
    moment_seconds = 12.0
    """The longest time from the start of all programs to the next fault: some come before the first step."""

    def __init__(self, program: str, count: int, *, in_place: bool, chance: random.Random, folder: Path) -> None:
        """Starts nothing yet.

        Args:
            program: The name of the program.
            count: The number of processes.
            in_place: Whether the job has restarts in place.
            chance: Chooses faults, victims and moments.
            folder: Of this round; it exists.
        """
        self.program, self.count, self.in_place, self.chance, self.folder = program, count, in_place, chance, folder
        self.name = f"{program} in {count} processes, {'in place' if in_place else 'anew'}"
        self.struck: list[Struck] = []
        self.explanation = ""
        """The state of the job when an expectation did not hold."""

    def play(self, until: float) -> list[Struck]:
        """Injects faults until there were `most_faults`, or until a `time.monotonic` time, and ends the job.

        Raises:
            Broken: An expectation does not hold.
        """
        with self.running():
            try:
                while len(self.struck) < self.most_faults and time.monotonic() < until:
                    self.struck.append(self.strike(self.chance.choice(self.faults)))
                self.end()
            except Broken:
                self.explanation = self.explain()
                raise
        return self.struck

    @abstractmethod
    def running(self) -> AbstractContextManager[None]:
        """Starts the job for a block, after which nothing of it is left."""

    @abstractmethod
    def strike(self, fault: str) -> Struck:
        """Injects a fault, and checks that the job continues as expected."""

    @abstractmethod
    def end(self) -> None:
        """Ends the job, and checks what must hold then."""

    @abstractmethod
    def explain(self) -> str:
        """What the job said and did last."""

    def check_resumed(self, fault: str, first: int, saved: int, kept: set[int]) -> None:
        """Checks that the first step after a fault follows a checkpoint, and none that is older than at the fault."""
        resumed = first - 1
        if resumed < saved or (resumed > 0 and resumed not in kept):
            raise Broken(f"{fault}: went on with step {first}; {saved} was saved, and now {sorted(kept)}")

    def wait[Result](self, what: str, condition: Callable[[], Result | None]) -> Result:
        """What a condition returns once it is true."""
        try:
            return wait_for(what, condition, timeout_seconds=PATIENCE_SECONDS, poll_seconds=0.25)
        except TimeoutError as error:
            raise Broken(f"{[each.fault for each in self.struck]} and one more: {error}") from error


Played = tuple[Round, Exception | None]
"""A round, and the expectation that does not hold, if any."""
Counts = Mapping[str, Sequence[int]]
"""The numbers of processes that a program may have."""


def rounds(seed: int, until: float, programs: Sequence[str], counts: Counts, kind: type[Round]) -> Iterator[Played]:
    """Runs rounds until a `time.monotonic` time."""
    chance = random.Random(seed)  # noqa: S311
    for number in itertools.count():
        if time.monotonic() >= until:
            return
        program = programs[number % len(programs)]
        folder = Path(tempfile.mkdtemp(prefix=f"random-faults-{seed}-{number}-"))
        folder.chmod(0o755)
        in_place, count = chance.choice((False, True)), chance.choice(counts[program])
        played = kind(program, count, in_place=in_place, chance=chance, folder=folder)
        try:
            played.play(until)
        except (Broken, CommandError) as error:
            yield played, error
        else:
            yield played, None


def at_once(
    jobs: int, seed: int, until: float, programs: Sequence[str], counts: Counts, kind: type[Round]
) -> Iterator[Played]:
    """Runs several `rounds` in parallel, with consecutive seeds."""
    played: queue.SimpleQueue[Played | None] = queue.SimpleQueue()

    def play(number: int) -> None:
        try:
            for each in rounds(seed + number, until, [*programs[number:], *programs[:number]], counts, kind):
                played.put(each)
        finally:
            played.put(None)

    with ThreadPoolExecutor(jobs) as threads:
        playing = [threads.submit(play, number) for number in range(jobs)]
        for _ in playing:
            yield from iter(played.get, None)
        for each in playing:
            each.result()


def rows(played: Mapping[str, Sequence[Struck]], apart: str) -> Iterator[tuple[object, ...]]:
    """A row of the table for each program; one fault, `apart`, is counted by itself, for nothing restarts after it."""
    for program, struck in played.items():
        if struck:
            stops = [sum(each.fault == apart for each in struck)] if apart else []
            in_place = sum(each.is_in_place for each in struck)
            seconds = sorted(each.seconds for each in struck)
            costs = f"{seconds[len(seconds) // 2]:.0f} s, at most {seconds[-1]:.0f} s"
            again = f"at most {max(each.repeated_steps for each in struck)}"
            anew = len(struck) - in_place - sum(stops)
            yield (program, len(struck), in_place, anew, *stops, costs, again)


def table_of(played: Mapping[str, Sequence[Struck]], apart: str = "") -> str:
    """The Markdown table of results."""
    heads = ("Program", "faults", "in place", "anew", *filter(None, [apart]), "to the next step", "steps done again")
    return "\n".join(table(heads, rows(played, apart)))


def main(
    doc: str | None, kind: type[Round], counts: Counts, marks: tuple[str, str], *, jobs: int, apart: str = ""
) -> int:
    """Runs rounds and prints the results; returns 1 if an expectation did not hold.

    Args:
        doc: The help.
        kind: Of the rounds.
        counts: The numbers of processes, by program; these are played if the command names none.
        marks: The comments in the page of faults between which `--write` puts the result.
        jobs: How many are played at a time.
        apart: A fault with a column of its own.
    """
    arguments = parser(doc)
    arguments.add_argument("--minutes", type=float, default=60.0)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--at-once", type=int, default=jobs, help="jobs at a time")
    arguments.add_argument("--write", action="store_true", help=f"write the result into {PAGE.name}")
    arguments.add_argument("programs", nargs="*", help="default: all that are installed", metavar="PROGRAM")
    options = arguments.parse_args()
    programs = options.programs or list(counts)
    found: dict[str, list[Struck]] = {program: [] for program in programs}
    problems, begun = 0, time.monotonic()
    until = begun + options.minutes * 60
    for played, broken in at_once(options.at_once, options.seed, until, programs, counts, kind):
        found[played.program] += played.struck
        show([f"{played.name}: {', '.join(f'{each.fault} {each.seconds:.0f} s' for each in played.struck)}"])
        if broken is not None:
            problems += 1
            show([f"BROKEN: {broken}", played.explanation, f"kept: {played.folder}"])
    minutes = f"Seed {options.seed}, {(time.monotonic() - begun) / 60:.0f} minutes"
    side_by_side = f", {options.at_once} jobs at a time" if options.at_once > 1 else ""
    result = f"{minutes}{side_by_side}: {problems} of what must hold did not.\n\n{table_of(found, apart)}"
    sys.stdout.write(result + "\n")
    if options.write:
        write_between(*marks, result)
    return 1 if problems else 0
