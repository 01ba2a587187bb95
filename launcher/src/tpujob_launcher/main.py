"""Process 1 of every container: `python -m tpujob_contract.launch -- COMMAND [ARGUMENT...]`.

Sets the variables with which any program joins the job (JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID),
and reports to Kubernetes how the program ended. Exit codes:

- 75 if the program returned 0 after it, or the program of another process of the job, got a stop signal: it did not
  finish, but Kubernetes would count the index as done while its peers wait forever. A program that the signal itself
  ended keeps 128 + n (143, 130): it saved nothing, and the operator looks for the cause.
- 78 if the environment or the command is wrong, or the command is not found (127 in a shell): a retry would end the
  same way, and every code except 76 to 78 is retried.
- 69 if another process holds the TPU.
- Otherwise the program's own code, or 128 + n for death by signal n. A Python program that ended with an uncaught
  exception or `sys.exit(N)` while peers wait for it is killed if its exit handlers do not return; its code is 1 or N.
"""

import logging
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Mapping, Optional, Sequence

from tpujob_contract.environment import (
    CONFIG,
    ContractError,
    DistributedProcess,
    IndependentWorker,
    LocalProcess,
    Process,
    read_environment,
)
from tpujob_contract.exit_codes import KILLED, ExitCode, of_replaced_pod
from tpujob_contract.reports.termination_message import failure_line, program_code_line
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.python_path import code_variables
from tpujob_launcher.peers.peers import Peers
from tpujob_launcher.reports.termination_message import TerminationMessage
from tpujob_launcher.supervise import tpu_access
from tpujob_launcher.supervise.attempts import Container
from tpujob_launcher.supervise.memory import Memory
from tpujob_launcher.supervise.outcome import ExitResult, Refused, exit_code_of, last_words
from tpujob_launcher.supervise.rendezvous import meet, refuse
from tpujob_launcher.supervise.signals import SignalQueue
from tpujob_launcher.supervise.tpu import TpuFiles, wait_for_tpu, wants_whole_tpu

logger = logging.getLogger(__name__)


def main() -> int:
    """Runs the command on this process's own command line, and returns the exit code."""
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
        tpu: Where to look for a TPU and its holder.
        ends_process: Whether this process ends with that code, which a later stop signal must not change.
    """
    message, memory = TerminationMessage(environ), Memory()
    with SignalQueue(ends_process=ends_process) as signals, _scratch() as scratch:
        try:
            command = _command(arguments)
            process = _process(environ)
            wait_for_tpu(environ, process, tpu, signals)
            logger.info("%s, pid %d: %s", _who(process), os.getpid(), command[0])
            access = tpu_access.look(tpu) if wants_whole_tpu(environ) else None
            if access is not None:
                logger.info("%s", access)
            environ = _with_code(environ, Path(scratch), command)
            with _meet(environ, process, Path(scratch)) as peers:
                container = Container(command, environ, process, signals, Path(scratch), message, peers, tpu)
                result, report = container.run()
        except Refused as refused:
            logger.error("%s", refused)  # noqa: TRY400 - one line, no stack
            message.write(refused.exit_code, [str(refused)])
            return refused.exit_code
        exit_code, diagnostics = exit_code_of(result)
        container_code = _container_code(exit_code, result, peers)
        if container_code == ExitCode.NO_ATTEMPT_LEFT:
            message.last_line = "\n".join(line for line in (program_code_line(exit_code), message.last_line) if line)
        if exit_code == KILLED:
            diagnostics = [*diagnostics, *memory.diagnostics()]
        if exit_code not in (ExitCode.FINISHED, ExitCode.STOPPED):
            diagnostics = [*diagnostics, *tpu_access.diagnostics(access, result.output)]
        if result.failure is not None and not result.failure.error:
            diagnostics.append(failure_line(result.failure.at, "its process ended"))
        message.write(exit_code, [*diagnostics, *report], last_words(result) if exit_code else b"")
        return container_code


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder of this launcher, in /tmp if the path of a socket in it were too long (108 bytes) otherwise."""
    is_long = len(os.fsencode(tempfile.gettempdir())) > _LONGEST_FOLDER
    return tempfile.TemporaryDirectory(prefix="tpujob-", dir="/tmp" if is_long else None)  # noqa: S108


_LONGEST_FOLDER = 64


@contextmanager
def _meet(environ: Mapping[str, str], process: Process, scratch: Path) -> Iterator[Optional[Peers]]:
    """The connection to the other launchers; None: there are none."""
    peers = meet(process, scratch)
    if peers is not None:
        peers.is_of_trainer = CONFIG in environ
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


def _container_code(exit_code: int, result: ExitResult, peers: Optional[Peers]) -> int:
    """The exit code of the container: if Kubernetes replaces single pods, it decides whether this one is replaced."""
    if peers is None or not peers.replaces_pods:
        return exit_code
    return of_replaced_pod(exit_code, was_asked=result.stop_signal is not None or peers.was_stopped)


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
    """The environment with the job's own code, if any, on PYTHONPATH; logs what was added."""
    try:
        variables, lines = code_variables(environ, scratch, command)
    except CodeRefused as refused:
        raise Refused(refused.exit_code, str(refused)) from refused
    for line in lines:
        logger.info("%s", line)
    return {**environ, **variables}


def _who(process: Process) -> str:
    if isinstance(process, LocalProcess):
        return "no TPUJOB_ variables, so one process on its own"
    job = f"{process.owner} attempt {process.attempt}"
    if isinstance(process, IndependentWorker):
        return f"worker {process.worker} of {process.workers} of {job}"
    return f"process {process.process_id} of {process.num_processes} of {job}, coordinator {process.coordinator}"
