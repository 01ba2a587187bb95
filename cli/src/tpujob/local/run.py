"""`tpujob run`: from a file to the last line."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from tpujob.errors import CommandError
from tpujob.job_file import read_job
from tpujob.local.display import ending_line, make_display
from tpujob.local.outcome import Outcome, judge, summary
from tpujob.local.plan import LocalProcess, plan_processes
from tpujob.local.reports import Report, ReportReader, last_attempt
from tpujob.local.supervisor import Supervisor, tail
from tpujob_contract import ExitCode
from tpujob_contract import environment as names
from tpujob_operator.jobset.build import materialize
from tpujob_operator.settings import Settings


def run_job(job_file: Path, *, directory: Path, json_output: bool, max_processes: int) -> int:
    """Runs a job on this machine to its end; returns the exit code, with the contract's meanings.

    Raises:
        CommandError: before anything was started.
    """
    job = read_job(job_file)
    jobset = materialize(job, Settings())
    root = directory.absolute() / (job.metadata.namespace or "default") / job.metadata.name
    processes = _plan(jobset, root, max_processes)
    grace_seconds = int(processes[0].environ[names.GRACE_SECONDS])

    console = Console(stderr=json_output, highlight=False)
    display = make_display(console)
    reader = ReportReader(processes[0].report_port)
    checkpoint_dir = processes[0].environ[names.CHECKPOINT_DIR]
    with ExitStack() as stack:
        stack.callback(display.close)
        display.say(_opening(job.spec.accelerator, processes, checkpoint_dir))
        supervisor = Supervisor(processes, grace_seconds=grace_seconds, on_tick=lambda: display.show(reader.latest))
        supervisor.on_interrupt = lambda count: display.say(
            f"stopping: saving first, at most {grace_seconds} s; Ctrl-C again to leave at once"
            if count == 1
            else "leaving at once"
        )
        supervisor.on_started = reader.start
        exits = supervisor.run()
        reader.close()
    outcome = judge(exits)
    report = {**reader.latest, **_ending(checkpoint_dir, reader.latest)}
    _close(Console(stderr=json_output, highlight=False), outcome, report, job_file)
    if json_output:
        sys.stdout.write(json.dumps(summary(outcome, report, processes=len(processes))) + "\n")
        sys.stdout.flush()
    return outcome.exit_code


def _plan(jobset: dict[str, Any], root: Path, max_processes: int) -> list[LocalProcess]:
    replicated = jobset["spec"]["replicatedJobs"][0]
    count = replicated["replicas"] * replicated["template"]["spec"]["parallelism"]
    if count > max_processes:
        raise CommandError(
            f"spec.accelerator, spec.slices: {count} hosts would be {count} processes on this machine, more than "
            f"{max_processes}; choose a smaller shape to rehearse, or pass --max-processes {count}"
        )
    run_directory = root / "logs" / time.strftime("%Y%m%dT%H%M%S")
    ports = _free_ports(count + 2)
    return plan_processes(
        jobset,
        inherited=os.environ,
        directory=run_directory,
        checkpoint_dir=str(root / "checkpoints"),
        coordinator_port=ports[0],
        report_ports=ports[2:],
    )


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now. All are held until all are chosen, so that they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def _opening(accelerator: str, processes: list[LocalProcess], checkpoint_dir: str) -> str:
    rehearsal = "" if accelerator.startswith("cpu:") else ", rehearsed on CPU devices"
    return (
        f"{accelerator}: {len(processes)} processes on this machine{rehearsal}\n"
        f"checkpoints  {_short(checkpoint_dir)}\n"
        f"logs         {_short(str(processes[0].log.parent))}"
    )


def _short(path: str) -> str:
    """A path as a person in this folder would type it."""
    here = os.getcwd() + "/"  # noqa: PTH109 - compared as text
    return path.removeprefix(here)


def _ending(checkpoint_dir: str, latest: Report) -> Report:
    """The trainer's own account of its end, which the last poll may have missed."""
    return (
        last_attempt(checkpoint_dir, attempt=latest.get("attempt"))
        if latest
        else last_attempt(checkpoint_dir, attempt=None)
    )


def _close(console: Console, outcome: Outcome, report: Report, job_file: Path) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    if outcome.phase == "Succeeded":
        if report.get("sample"):
            say(f"\nsample:\n{report['sample']}\n")
        say(report.get("message") or ending_line(report))
        if report.get("checkpoint"):
            say(f"checkpoint   {_short(report['checkpoint'])}")
    elif outcome.phase == "Suspended":
        step = report.get("committed_step")
        saved = f"saved at step {step}" if step is not None else "nothing was saved yet"
        say(f"stopped: {saved}; `tpujob run {job_file}` goes on from there")
    elif outcome.culprit is not None:
        culprit = outcome.culprit
        message = tail(culprit.process.termination_log, 20)
        say(f"failed: {outcome.reason}")
        for line in message:
            if not line.startswith("report: "):  # its last one, for the operator
                say(f"  {line}")
        say(f"its log: {_short(str(culprit.process.log))}")
        if report.get("committed_step") is not None and outcome.exit_code not in (
            ExitCode.CONFIGURATION,
            ExitCode.NOT_FOUND,
        ):
            say(f"last committed step: {report['committed_step']}; `tpujob run {job_file}` goes on from there")
