"""`tpujob run`: prepares a job, runs its processes on this machine, and prints the result."""

import functools
import itertools
import os
import socket
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from tpujob.job.code.job_code import importing_code, unpack_code, with_local_code
from tpujob.job.questions.trainer_facts import ask_trainer, require_no_problem
from tpujob.local import runs
from tpujob.local.announcements import Announcements, has_units
from tpujob.local.closing import Closing, drawn, short_path
from tpujob.local.display import make_display
from tpujob.local.outcome import Outcome, judge, run_with_restarts, summary
from tpujob.local.placement import PlacedJob, Placement
from tpujob.local.plan import LocalProcess, plan_processes
from tpujob.local.program_output import LauncherNotices, ProgramOutput
from tpujob.local.reports import Report, ReportReader, last_report, message_of
from tpujob.local.supervisor import Exit, Supervisor
from tpujob.local.tpu_machine import require_libtpu
from tpujob.output.errors import CommandError
from tpujob_contract import environment as names
from tpujob_contract import ports, shared_secret, storage_address
from tpujob_contract.job_facts import Facts
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.phases import Phase
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.warnings import rehearsal_warnings


def run_job(
    placed: PlacedJob,
    *,
    directory: Path,
    max_processes: int,
    text_to_stderr: bool = False,
    code: Path | None = None,
    commit: str | None = None,
    verbose: bool = False,
    restarts: int = 0,
) -> tuple[int, dict[str, Any]]:
    """Runs a job on this machine to its end; returns the exit code, with the contract's meanings, and a summary.

    Args:
        placed: What to run, and which of its processes run here.
        directory: Where logs go, and checkpoints unless the job names a place.
        max_processes: A job with more is refused.
        text_to_stderr: Whether text goes to stderr, because stdout is for a program.
        code: Folder of code to pack; None: the current folder if there is a commit, otherwise no code.
        commit: A commit of that folder; None: the folder as it is now.
        verbose: Whether to show what the launcher prints about itself.
        restarts: How often to run it again after a crash, without a newer checkpoint.

    Raises:
        CommandError: before anything was started.
    """
    code = code or (Path() if commit is not None else None)

    def attempt(number: int) -> tuple[int, dict[str, Any]]:
        return _run_once(placed, directory, max_processes, text_to_stderr, code, commit, verbose, number)

    return run_with_restarts(attempt, restarts, say=functools.partial(_say, text_to_stderr))


def _run_once(
    placed: PlacedJob,
    directory: Path,
    max_processes: int,
    text_to_stderr: bool,
    code: Path | None,
    commit: str | None,
    verbose: bool,
    attempt: int,
) -> tuple[int, dict[str, Any]]:
    """One attempt of `run_job`, made after so many others."""
    job, placement = placed.job, placed.placement
    warnings = [] if placement.on_chips or placement.is_distributed else list(rehearsal_warnings(job))
    root = directory.absolute() / (job.metadata.namespace or "default") / job.metadata.name
    if code is not None:
        job = with_local_code(job, code, root / "code", commit)
    secret = os.environ.get(names.SECRET, "") if placement.is_distributed else shared_secret.draw()
    if placement.is_distributed:
        warnings += [*_shared_directory(job), *without_secret(job, secret)]
    if placement.on_chips and job.spec.trainer is not None:
        require_libtpu()
    unpacked = unpack_code(job.spec.code, root / "code")
    processes = _plan(job, root, max_processes, unpacked, placement, attempt, secret)
    lead = processes[0]
    facts = _ask_trainer(job, lead, placement, processes_here=len(processes))
    require_no_problem(facts)
    warnings += facts.warnings
    runs.keep(lead.log.parent, [process.report_port for process in processes], secret)
    exits, report = _supervise(job, processes, placement, warnings, text_to_stderr=text_to_stderr, verbose=verbose)
    messages = {each.process.index: "\n".join(message_of(each.process.termination_log)) for each in exits}
    outcome, checkpoint_dir = judge(exits, messages), lead.environ[names.CHECKPOINT_DIR]
    closing = Closing(
        outcome,
        report,
        again=placed.again,
        has_trainer=job.spec.trainer is not None,
        has_units=has_units(job),
        curves=[] if report.get("loss") is None or placement.host else drawn(checkpoint_dir, root),
    )
    for line in closing.lines():
        _say(text_to_stderr, line)
    return outcome.exit_code, summary(outcome, report, processes=len(processes), cause=closing.cause, warnings=warnings)


def _say(is_to_stderr: bool, line: str) -> None:
    Console(stderr=is_to_stderr, highlight=False).print(line, markup=False, soft_wrap=True)


def _ask_trainer(job: TpuTrainingJob, lead: LocalProcess, placement: Placement, *, processes_here: int) -> Facts:
    """The trainer's facts before the start, in the environment of the job's first process here."""
    # Only for a trainer, whose Python is this one; a command may run with another Python, which has other packages.
    with importing_code(lead.environ) if job.spec.trainer else nullcontext(lead.environ) as environ:
        return ask_trainer(
            job,
            # Host 0 claims it for all hosts; to the others, its lock would look like that of another run.
            checkpoint_dir=lead.environ[names.CHECKPOINT_DIR] if placement.host in (None, 0) else None,
            is_run=True,
            on_chips=placement.on_chips,
            processes_here=processes_here,
            environ=environ,
            directory=lead.working_directory,
        )


def _supervise(
    job: TpuTrainingJob,
    processes: list[LocalProcess],
    placement: Placement,
    warnings: list[str],
    *,
    text_to_stderr: bool,
    verbose: bool,
) -> tuple[list[Exit], Report]:
    """Runs all processes and shows their progress; returns their exits, and the last report of the run."""
    lead, checkpoint_dir = processes[0], processes[0].environ[names.CHECKPOINT_DIR]
    grace_seconds = int(lead.environ[names.GRACE_SECONDS])
    display = make_display(Console(stderr=text_to_stderr, highlight=False), has_units=has_units(job))
    announcements = Announcements(job, placement, grace_seconds, display.say)
    reader = ReportReader(lead.report_port)
    notices = LauncherNotices(processes)
    output = None
    if job.spec.trainer is None:
        output = ProgramOutput(lead.log, verbose=verbose, first_silent=notices.first_silent)

    def tick() -> None:
        now = time.monotonic()
        for line in (*(output.lines(now) if output else ()), *notices.lines(now)):
            display.say(line)
        display.show(reader.latest)

    with ExitStack() as stack:
        stack.callback(display.close)
        announcements.opening(processes, checkpoint_dir, warnings)
        supervisor = Supervisor(
            processes,
            grace_seconds=grace_seconds,
            on_tick=tick,
            finish_together=job.spec.trainer is not None and job.spec.workers is None,
            restarts=None if job.spec.workers is None else job.spec.restarts.crashes,
        )
        supervisor.on_interrupt = announcements.interrupt
        supervisor.on_frozen = announcements.frozen
        supervisor.on_failure = announcements.failure
        supervisor.on_worker_failure = announcements.worker_failure
        supervisor.on_slow_stop = announcements.slow_stop
        if job.spec.workers is None:
            supervisor.on_early_finish = announcements.early_finish
        supervisor.on_started = reader.start
        exits = supervisor.run()
        reader.close()
        report = last_report([each.termination_log for each in processes], checkpoint_dir, reader.latest)
        for line in itertools.chain(output.rest() if output else (), notices.rest()):
            display.say(line)
        # A short run may end before a report was read that names the step from which it resumed.
        display.show(report)
    return exits, report


def refusal(error: CommandError) -> dict[str, Any]:
    """The summary of a run that was refused before anything was started, with the keys of every summary."""
    refused = Outcome(phase=Phase.INVALID, exit_code=error.exit_code, culprit=None)
    cause = "; ".join(error.problems)
    return summary(refused, {"message": cause}, processes=0, cause=cause)


def without_secret(job: TpuTrainingJob, secret: str) -> list[str]:
    """A warning about a job on several machines whose launchers show each other nothing.

    The machines could not agree on a secret that this command draws.
    """
    words = (
        f"{names.SECRET}: is not set, so whoever reaches port {ports.LAUNCHER} of the first host can end this run; set "
        "it to the same random text on all hosts"
    )
    return [] if secret or job.spec.workers is not None else [words]


def _shared_directory(job: TpuTrainingJob) -> list[str]:
    """Warnings about the checkpoint directory of a job on several machines.

    Raises:
        CommandError: there is none, and each machine would save on its own.
    """
    directory = job.spec.checkpoint_dir
    if job.spec.trainer is None or job.hosts == 1:
        return []
    if directory is None:
        raise CommandError(
            f"spec.checkpointDir: is missing; {job.hosts} machines save one checkpoint together: name a bucket, as in "
            "gs://BUCKET/RUN, or a folder that all of them have"
        )
    if storage_address.is_path(directory):
        return [f"spec.checkpointDir: {directory} must be the same folder on all {job.hosts} machines"]
    return []


def _plan(
    job: TpuTrainingJob,
    root: Path,
    max_processes: int,
    code: Path | None,
    placement: Placement,
    attempt: int,
    secret: str,
) -> list[LocalProcess]:
    jobset = build_jobset(job, JobSettings())
    replicated = jobset["spec"]["replicatedJobs"][0]
    count = 1 if placement.is_distributed else replicated["replicas"] * replicated["template"]["spec"]["parallelism"]
    if count > max_processes and job.spec.workers is not None:
        raise CommandError(
            f"spec.workers: {count} would be as many processes on this machine, more than {max_processes}; try the job "
            f"with --set spec.workers={min(max_processes, 4)}, or pass --max-processes {count}"
        )
    if count > max_processes:
        raise CommandError(
            f"spec.accelerator, spec.slices: {count} hosts would be {count} processes on this machine, more than "
            f"{max_processes}; to try the job here, use accelerator: cpu:2x4, slices: 1 and model: {{preset: tiny}}, "
            f"or pass --max-processes {count}"
        )
    run_directory = root / "logs" / time.strftime("%Y%m%dT%H%M%S")
    try:
        run_directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"--directory: cannot create {short_path(str(run_directory))} ({error.strerror}); name a folder that you "
            "may write to, with room on its disk"
        ) from error
    free = _free_ports(count + 2)
    return plan_processes(
        jobset,
        inherited=os.environ,
        directory=run_directory,
        checkpoint_dir=str(root / "checkpoints"),
        coordinator_port=free[0],
        launcher_port=free[1],
        report_ports=free[2:],
        secret=secret,
        code=code,
        placement=placement,
        # Several machines count independently, and could not connect with different numbers.
        attempt=0 if placement.is_distributed else attempt,
    )


def _free_ports(count: int) -> list[int]:
    """Different free ports: each is held until all are chosen."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
