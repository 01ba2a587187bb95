"""Runs on this machine: the process that leads each, its report ports and its logs."""

import collections
import contextlib
import itertools
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tpujob.job.template import job_name
from tpujob.local.reports import LogFollower, Report, fetch_report, final_report
from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode
from tpujob_contract.typed import object_in, typed
from tpujob_contract.whole_file import replaced

FILE = "processes.json"
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class LocalRun:
    """One `tpujob run`, by the folder of its logs."""

    directory: Path
    pid: int = 0
    """Of `tpujob run`; 0: it was not recorded."""
    started: str = ""
    """The kernel's start time of that process, which tells it from a later one with the same pid."""
    report_ports: list[int] = field(default_factory=list)
    """Of each process on this machine."""
    secret: str = field(default="", repr=False)
    """Which its processes ask for; empty: they ask for none."""

    @property
    def is_running(self) -> bool:
        """Whether that process is alive."""
        return bool(self.started) and _start_of(self.pid) == self.started

    @property
    def logs(self) -> list[Path]:
        """One for each process, in order of process id."""
        logs = [log for log in self.directory.glob("process-*.log") if re.fullmatch(r"process-[0-9]{1,9}", log.stem)]
        return sorted(logs, key=lambda log: int(log.stem.rpartition("-")[2]))

    def report(self) -> Report:
        """The latest report of its first process on this machine; empty if there is none."""
        if self.is_running and self.report_ports:
            return fetch_report(self.report_ports[0])
        endings = [log.with_suffix(".ending") for log in self.logs]
        return final_report(endings[0]) if endings else {}

    def interrupt(self) -> None:
        """Asks it to save and stop, as Ctrl-C does."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                # Not SIGINT: a shell without a terminal starts background programs with SIGINT ignored.
                os.kill(self.pid, signal.SIGTERM)

    def lines(self, *, host: int | None, tail: int | None, follow: bool) -> Iterator[str]:
        """The logs of its processes, or of one; with `follow`, until it ends."""
        logs = [log for log in self.logs if host is None or log.stem == f"process-{host}"]
        if not logs:
            which = "there is no log" if host is None else f"--host: {host} has no log"
            raise CommandError(f"{which} in {self.directory}", exit_code=ExitCode.NOT_FOUND)
        followers = [(f"{log.stem} | " if len(logs) > 1 else "", LogFollower(log)) for log in logs]
        for begin, follower in followers:
            lines = follower.rest() if not follow else itertools.chain.from_iterable(iter(follower.lines, []))
            yield from (f"{begin}{line}" for line in collections.deque(lines, tail or None))
        while follow:
            is_last = not self.is_running
            for begin, follower in followers:
                yield from (f"{begin}{line}" for line in (follower.rest() if is_last else follower.lines()))
            if is_last:
                return
            time.sleep(POLL_SECONDS)


def keep(run_directory: Path, report_ports: Sequence[int], secret: str) -> None:
    """Records this process as the one that leads a run; nobody else can read that record.

    Args:
        run_directory: Folder of the run's logs.
        report_ports: Of each process on this machine, in order of process id.
        secret: Which its processes ask for.
    """
    found = {"pid": os.getpid(), "started": _start_of(os.getpid()), "report_ports": list(report_ports)}
    with replaced(run_directory / FILE, 0o600) as unfinished:
        unfinished.write_text(json.dumps({**found, "secret": secret}))


def has_run(root: Path) -> bool:
    """Whether a job was run here; `root` is its folder."""
    return any(root.glob(f"logs/*/{FILE}"))


def newest(root: Path) -> LocalRun:
    """The newest run of a job.

    Args:
        root: the folder of the job; its last part may also be the name of the program's file.

    Raises:
        CommandError: nothing was run there.
    """
    of_program = root.with_name(job_name(root))
    runs = sorted(root.glob(f"logs/*/{FILE}")) or sorted(of_program.glob(f"logs/*/{FILE}"))
    if not runs:
        raise CommandError(
            f"--local: `tpujob run` has not run this job in {root}; see --directory and -n",
            exit_code=ExitCode.NOT_FOUND,
        )
    return _read(runs[-1])


def newest_of_all(directory: Path) -> list[tuple[str, LocalRun]]:
    """The newest run of each job, with its namespace/name; `directory` is the --directory of `tpujob run`."""
    roots = sorted({file.parents[2] for file in directory.glob(f"*/*/logs/*/{FILE}")})
    return [(f"{root.parent.name}/{root.name}", newest(root)) for root in roots]


def wait_for_end(run: LocalRun) -> None:
    """Returns when a run has ended."""
    while run.is_running:
        time.sleep(POLL_SECONDS)


def row(name: str, run: LocalRun) -> tuple[str, ...]:
    """One row of text, in the order of COLUMNS; unknown values are empty."""
    report = run.report()
    step, loss = report.get("step"), report.get("loss")
    return (
        name,
        f"running, pid {run.pid}" if run.is_running else "ended",
        str(report.get("phase") or ""),
        "" if step is None else f"{step}/{report['steps']}" if report.get("steps") else str(step),
        f"{loss:.3f}" if isinstance(loss, float) else "",
        str(run.directory),
    )


COLUMNS = ("NAME", "STATE", "PHASE", "STEP", "LOSS", "LOGS")


def _read(file: Path) -> LocalRun:
    return LocalRun(file.parent, **typed(object_in(file.read_bytes()), LocalRun))


def _start_of(pid: int) -> str:
    """The start time of a process, proc(5) field 22; empty if there is no such process, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
