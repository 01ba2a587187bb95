"""Process 1 of every container: `python -m tpujob_contract.launch -- COMMAND [ARGUMENT...]`.

Gives any program its place in the job (JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID), and gives
Kubernetes a true account of its end. Exit codes:

- 75 when the program got a stop signal and returned 0: it did not finish, and Kubernetes would count the index as done
  and let its peers wait for ever. A program that the signal itself ended keeps 128 + n (143, 130): it saved nothing,
  and the operator looks for the cause.
- 78 when the environment or the command is wrong, a command not found included (a shell says 127): a retry would end
  the same way, and every code but 76 to 78 is retried.
- 69 when another process holds the TPU.
- Otherwise the program's own, and 128 + n for death by signal n. A Python program that an uncaught exception or
  `sys.exit(N)` has ended, and that others wait for, is killed if its exit handlers do not return; its code is 1 or N.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from tpujob_contract import environment as names
from tpujob_contract.environment import (
    ContractError,
    DistributedProcess,
    IndependentWorker,
    LocalProcess,
    Process,
    read_environment,
)
from tpujob_contract.exit_codes import ExitCode, of_replaced_pod
from tpujob_contract.reports.termination_message import (
    NOT_ASKED,
    RETURNED_0,
    failure_line,
    program_code_line,
    stopped_line,
)
from tpujob_launcher.child.program_end import ProgramEnds
from tpujob_launcher.child.signals import STOP, SignalQueue
from tpujob_launcher.child.supervisor import ExitResult, run
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.python_path import code_variables
from tpujob_launcher.frameworks import known as frameworks
from tpujob_launcher.peers.meeting import announce_end, join, meet, next_attempt, refuse
from tpujob_launcher.peers.peers import Peers
from tpujob_launcher.reports.reporting import Reporting
from tpujob_launcher.reports.termination_message import TerminationMessage
from tpujob_launcher.tpu import access as tpu_access
from tpujob_launcher.tpu.holders import TpuFiles, find_holders, wants_whole_tpu

logger = logging.getLogger(__name__)

_JAX_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
_LOCAL_DEVICES = "JAX_LOCAL_DEVICE_IDS"
"""On CPU, JAX does not use the value. Without it, `jax.distributed.initialize` looks for a cluster to ask. That fails
in an image with the package `kubernetes`: pods have no token (jax-ml/jax:jax/_src/clusters/k8s_cluster.py)."""


FAILED_EXIT_SECONDS = 5.0
"""How long a program that has peers may take to end once an exception has ended its main thread. A JAX program waits in
its exit handler until all peers are there, for up to five minutes, and the peers wait for it."""


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """The command is not started."""

    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


def main() -> int:
    """The exit code, after the command on this process's own command line has ended."""
    logging.basicConfig(format="tpujob launch: %(message)s", level=logging.INFO, stream=sys.stderr)
    return launch(sys.argv[1:], os.environ, ends_process=True)


def launch(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    tpu: TpuFiles = TpuFiles(),  # noqa: B008 - frozen
    *,
    ends_process: bool = False,
) -> int:
    """Runs the command as a process of a job and returns the exit code of the container; only in the main thread.

    Args:
        arguments: `--`, the program, its arguments.
        environ: The environment of this process.
        tpu: Where to look for a TPU and its user.
        ends_process: Whether this process ends with that code, which no later stop signal is to change.
    """
    message = TerminationMessage(environ)
    with SignalQueue(ends_process=ends_process) as signals, tempfile.TemporaryDirectory(prefix="tpujob-") as scratch:
        try:
            command = _command(arguments)
            process = _process(environ)
            _wait_for_tpu(environ, process, tpu, signals)
            logger.info("%s, pid %d: %s", _who(process), os.getpid(), command[0])
            access = _look_at_tpu(environ, tpu)
            environ = _with_code(environ, Path(scratch), command)
            with _meet(process, Path(scratch)) as peers:
                result, report = _run_attempts(command, environ, process, signals, Path(scratch), message, peers, tpu)
        except Refused as refused:
            logger.error("%s", refused)  # noqa: TRY400 - one line, no stack
            message.write(refused.exit_code, [str(refused)])
            return refused.exit_code
        exit_code, diagnostics = exit_code_of(result)
        container_code = _container_code(exit_code, result, peers)
        if container_code == ExitCode.NO_ATTEMPT_LEFT:
            message.last_line = "\n".join(line for line in (program_code_line(exit_code), message.last_line) if line)
        if exit_code not in (ExitCode.FINISHED, ExitCode.STOPPED):
            diagnostics = [*diagnostics, *tpu_access.diagnostics(access, result.output)]
        if result.failure is not None and not result.failure.error:
            diagnostics.append(failure_line(result.failure.at, "its process ended"))
        message.write(exit_code, [*diagnostics, *report], _last_words(result) if exit_code else b"")
        return container_code


@contextmanager
def _meet(process: Process, scratch: Path) -> Iterator[Optional[Peers]]:
    """The other launchers, if there are any."""
    peers = meet(process, scratch)
    if peers is None and isinstance(process, DistributedProcess) and process.in_place and process.pods_before:
        raise Refused(ExitCode.NO_ATTEMPT_LEFT, "this pod takes the place of an earlier one, and cannot be launcher 0")
    try:
        yield peers
    except Refused as refused:
        if peers is not None:
            refuse(peers, refused.exit_code, str(refused))
        raise
    finally:
        if peers is not None:
            peers.close()


def _run_attempts(
    command: Sequence[str],
    environ: Mapping[str, str],
    process: Process,
    signals: SignalQueue,
    scratch: Path,
    message: TerminationMessage,
    peers: Optional[Peers],
    tpu: TpuFiles,
) -> Tuple[ExitResult, List[str]]:
    """How the last attempt in this container ended, and the lines that report its progress."""
    attempt = 0
    if peers is not None and peers.standing.attempt < 0:
        attempt = _join(peers, signals, process, message)
    while True:
        folder = scratch / str(attempt)
        folder.mkdir()
        given = environ
        if attempt and peers is not None:
            of_attempt = {
                names.IN_PLACE_ATTEMPT: str(attempt),
                names.IN_PLACE_CAUSE: peers.standing.cause,
                names.IN_PLACE_ACCOUNT: peers.history.json,
            }
            given, process = {**environ, **of_attempt}, read_environment({**environ, **of_attempt})
        result, report = _run(command, given, process, signals, folder, peers, message)
        if peers is None or not isinstance(process, DistributedProcess):
            return result, report
        following = next_attempt(peers, signals, process, exit_code_of(result)[0])
        if following is None:
            return result, report
        said, printed = "\n".join([message.text, *report]), _last_words(result).decode(errors="replace")
        _count_end(peers, message, said=said, printed=printed)
        attempt = following
        peers.begin(attempt)
        _wait_for_tpu(environ, process, tpu, signals, peers)


def _join(peers: Peers, signals: SignalQueue, process: Process, message: TerminationMessage) -> int:
    """The attempt in which the program of a replaced pod starts."""
    assert isinstance(process, DistributedProcess)
    attempt = join(peers, signals, process)
    if attempt is None:
        message.last_line = peers.history.line
        if peers.was_stopped:
            raise Refused(ExitCode.STOPPED, "told to stop before the other launchers let the program start")
        why = peers.standing.over or "launcher 0 does not answer"
        raise Refused(ExitCode.NO_ATTEMPT_LEFT, f"this pod has come to no attempt of the others: {why}")
    _count_end(peers, message)
    peers.begin(attempt)
    return attempt


def _count_end(peers: Peers, message: TerminationMessage, *, said: str = "", printed: str = "") -> None:
    """Notes how the attempt ended that the next one follows."""
    peers.history.add(peers.standing.end, message=said, output=printed, now=time.time())
    message.clear()
    message.last_line = peers.history.line


def _container_code(exit_code: int, result: ExitResult, peers: Optional[Peers]) -> int:
    """The exit code of the container: where Kubernetes replaces single pods, it tells what happens to this one."""
    if peers is None or not peers.replaces_pods:
        return exit_code
    return of_replaced_pod(exit_code, was_asked=result.stop_signal is not None or peers.was_stopped)


def child_environment(
    environ: Mapping[str, str], process: Process, command: Sequence[str] = (), metrics_file: str = ""
) -> Dict[str, str]:
    """The environment of the command: its ids where it is one of several, none where it works alone."""
    child = dict(environ)
    if isinstance(process, DistributedProcess):
        values = (process.coordinator, str(process.num_processes), str(process.process_id))
        child.update(zip(_JAX_VARIABLES, values))  # noqa: B905 - strict= came with 3.10
        if environ.get("JAX_PLATFORMS") == "cpu":
            child[_LOCAL_DEVICES] = ",".join(map(str, range(process.chips_per_host)))
        child.update(frameworks.variables(process, environ, command, metrics_file))
    elif isinstance(process, IndependentWorker):
        # What an image brings along would make 32 workers wait for each other.
        for name in (*_JAX_VARIABLES, _LOCAL_DEVICES):
            child.pop(name, None)
    return child


def exit_code_of(result: ExitResult) -> Tuple[int, List[str]]:
    """The exit code of the container, and diagnostics, for a program that has ended."""
    diagnostics = list(result.diagnostics)
    if result.following is not None:
        code, words = result.following
        diagnostics.insert(0, words)
        if result.was_told and result.stop_signal is None and (result.code > 128 or result.code == ExitCode.FINISHED):
            return code, diagnostics
    if result.failure is not None and result.failure.error:
        diagnostics.insert(0, failure_line(result.failure.at, result.failure.error))
    if result.stop_signal is not None:
        name = signal.Signals(result.stop_signal).name
        if result.code == ExitCode.FINISHED:
            told = f"told to stop by {name}, {RETURNED_0}"
            return ExitCode.STOPPED, [*diagnostics, told, stopped_line(result.stopped_at)]
        diagnostics.append(f"told to stop by {name}")
    elif result.code == ExitCode.STOPPED:
        diagnostics.append(NOT_ASKED)
    if result.code == ExitCode.STOPPED:
        diagnostics.append(stopped_line(result.stopped_at))
    return result.code, diagnostics


def _command(arguments: Sequence[str]) -> Sequence[str]:
    if len(arguments) < 2 or arguments[0] != "--":
        given = " ".join(arguments) or "nothing"
        usage = "usage: python -m tpujob_contract.launch -- COMMAND [ARGUMENT...]"
        raise Refused(ExitCode.CONFIGURATION, f"no command to run, given: {given}; {usage}")
    return arguments[1:]


def _process(environ: Mapping[str, str]) -> Process:
    try:
        return read_environment(environ)
    except ContractError as error:
        raise Refused(ExitCode.CONFIGURATION, str(error)) from error


def _with_code(environ: Mapping[str, str], scratch: Path, command: Sequence[str]) -> Mapping[str, str]:
    """The environment with the job's own code on PYTHONPATH, where it has some; what that is, is logged."""
    try:
        variables, lines = code_variables(environ, scratch, command)
    except CodeRefused as refused:
        raise Refused(refused.exit_code, str(refused)) from refused
    for line in lines:
        logger.info("%s", line)
    return {**environ, **variables}


def _look_at_tpu(environ: Mapping[str, str], tpu: TpuFiles) -> Optional[tpu_access.TpuAccess]:
    """Who may open the chips, logged; None where there are none, or none are wanted."""
    access = tpu_access.look(tpu) if wants_whole_tpu(environ) else None
    if access is not None:
        logger.info("%s", access)
    return access


def _wait_for_tpu(
    environ: Mapping[str, str],
    process: Process,
    tpu: TpuFiles,
    signals: SignalQueue,
    peers: Optional[Peers] = None,
) -> None:
    """Returns once no other process holds the TPU. Launchers that have met hear each other meanwhile.

    A holder that is on its way out needs a grace period at most, and longer than `startup_seconds` the other processes
    would not wait for us.
    """
    if not wants_whole_tpu(environ):
        return
    limit = min(process.grace_seconds, process.startup_seconds)
    deadline = time.monotonic() + limit
    is_told = False
    while True:
        holders = "; ".join(map(str, find_holders(tpu)))
        if not holders:
            return
        if time.monotonic() >= deadline:
            raise Refused(
                ExitCode.TPU_HELD, f"the TPU is in use: {holders}, still after {limit} s; end it, or use another host"
            )
        if not is_told:
            logger.warning("the TPU is in use: %s; waiting up to %d s", holders, limit)
            is_told = True
        if peers is not None:
            peers.step()
        for number in signals.wait(min(0.5, max(0.0, deadline - time.monotonic()))):
            if number in STOP:
                name = signal.Signals(number).name
                raise Refused(ExitCode.STOPPED, f"told to stop by {name} before anything was started; {holders}")


def _run(
    command: Sequence[str],
    environ: Mapping[str, str],
    process: Process,
    signals: SignalQueue,
    scratch: Path,
    peers: Optional[Peers],
    message: TerminationMessage,
) -> Tuple[ExitResult, List[str]]:
    """How the command ended, and the lines that report its progress."""
    metrics_file = scratch / "metrics.jsonl"
    child = child_environment(environ, process, command, str(metrics_file))
    reporting = frameworks.reporting(process, child, command, metrics_file)
    with ExitStack() as stack:
        ends = _listen(scratch, stack)
        try:
            result = run(
                command,
                {**child, **(ends.variables(child) if ends else {}), **(peers.variables if peers else {})},
                signals,
                grace_seconds=process.grace_seconds,
                keep_output=message.is_wanted,
                on_start=lambda child: _start_all(reporting, peers, child),
                ends=ends,
                exit_seconds=FAILED_EXIT_SECONDS if _has_peers(process) else None,
                others=peers,
                silence_seconds=process.silence_seconds,
                on_end=lambda result: _announce_end(result, peers, message),
            )
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOMEM):  # the machine's fault, and may be gone next time
                raise
            reason = f"command {command[0]!r} cannot be started: {error.strerror}"
            raise Refused(ExitCode.CONFIGURATION, f"{reason}; {_way_out(command[0])}") from error
    return result, reporting.finish(exit_code_of(result)[0]) if reporting else []


def _announce_end(result: ExitResult, peers: Optional[Peers], message: TerminationMessage) -> None:
    """Tells the other launchers how the program of this one has ended."""
    if peers is None:
        return
    failure = result.failure
    announce_end(
        peers,
        code=exit_code_of(result)[0],
        at=failure.at if failure else time.time(),
        line=message.first_line or (failure.error if failure else ""),
        stopped_at=None if result.stop_signal is None else result.stopped_at,
        was_told=result.was_told,
    )


def _start_all(reporting: Optional[Reporting], peers: Optional[Peers], child: int) -> None:
    if reporting is not None:
        reporting.start()
    if peers is not None:
        peers.started(child)


def _listen(scratch: Path, stack: ExitStack) -> Optional[ProgramEnds]:
    """Where the program reports its end; None where there can be no socket."""
    try:
        return stack.enter_context(ProgramEnds(scratch))
    except OSError as error:
        logger.warning("an uncaught exception of the program is seen only when its process ends: %s", error)
        return None


def _has_peers(process: Process) -> bool:
    return isinstance(process, DistributedProcess) and process.num_processes > 1


def _last_words(result: ExitResult) -> bytes:
    """The end of the output; where other things follow the traceback of the program's error there, the traceback.

    A program that calls `sys.exit` has reported why before, and Python prints no traceback of that.
    """
    failure = result.failure
    is_exit = failure is None or failure.error.startswith("SystemExit")
    trace = b"" if failure is None or is_exit else failure.traceback.strip().encode()
    return trace if trace and not result.output.rstrip().endswith(trace.rpartition(b"\n")[2]) else result.output


def _way_out(program: str) -> str:
    """What to write instead of a program that cannot be started."""
    if program.endswith(".py"):
        return f"a Python file needs its interpreter: write [python3, {program}]"
    return "give a program that is in the image"


def _who(process: Process) -> str:
    if isinstance(process, LocalProcess):
        return "no TPUJOB_ variables, so one process on its own"
    job = f"{process.owner} attempt {process.attempt}"
    if isinstance(process, IndependentWorker):
        return f"worker {process.worker} of {process.workers} of {job}"
    return f"process {process.process_id} of {process.num_processes} of {job}, coordinator {process.coordinator}"
