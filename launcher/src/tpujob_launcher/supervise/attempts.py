"""Runs the command of a container in one or more attempts, and reports each end to the other launchers."""

import errno
import json
import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import List, Mapping, Optional, Sequence, Tuple

from tpujob_contract import environment as names
from tpujob_contract.environment import DistributedProcess, Process, read_environment
from tpujob_contract.exit_codes import ExitCode
from tpujob_contract.reports import in_place
from tpujob_launcher.peers.peers import Peers
from tpujob_launcher.reports import frameworks as frameworks
from tpujob_launcher.reports import serving
from tpujob_launcher.reports.progress import Progress
from tpujob_launcher.reports.termination_message import TerminationMessage
from tpujob_launcher.supervise.environment import child_environment
from tpujob_launcher.supervise.outcome import ExitResult, Refused, exit_code_of, last_words
from tpujob_launcher.supervise.program_end import ProgramEnds
from tpujob_launcher.supervise.rendezvous import announce_end, join, next_attempt, stop_between
from tpujob_launcher.supervise.signals import SignalQueue
from tpujob_launcher.supervise.supervisor import run
from tpujob_launcher.supervise.tpu import TpuFiles, wait_for_tpu

logger = logging.getLogger(__name__)

FAILED_EXIT_SECONDS = 5.0
"""How long a program that has peers may take to end once an exception has ended its main thread. In its exit handler a
JAX program waits for all peers, for up to five minutes, and the peers wait for it."""


@dataclass(frozen=True)
class Container:
    """The values that all attempts of a container share."""

    command: Sequence[str]
    environ: Mapping[str, str]
    process: Process
    signals: SignalQueue
    scratch: Path
    """A folder for files of the attempts."""
    message: TerminationMessage
    peers: Optional[Peers]
    """The other launchers; None: there are none."""
    tpu: TpuFiles

    def run(self) -> Tuple[ExitResult, List[str]]:
        """How the last attempt ended, and the lines that report its progress.

        Raises:
            Refused: an attempt does not start.
        """
        peers = self.peers
        attempt = self._join(peers) if peers is not None and peers.state.attempt < 0 else 0
        while True:
            result, report = self._run(attempt)
            following = next_attempt(peers, self.signals, exit_code_of(result)[0]) if peers is not None else None
            if peers is None or following is None:
                return result, report
            text = "\n".join([self.message.text, *report])
            self._begin(peers, following, message=text, output=last_words(result).decode(errors="replace"))
            wait_for_tpu(self.environ, self.process, self.tpu, self.signals, peers.step)
            attempt = following

    def _join(self, peers: Peers) -> int:
        """The attempt in which the program of a replaced pod starts."""
        attempt = join(peers, self.signals)
        if attempt is None:
            self.message.last_line = in_place.line(peers.state.account)
            if peers.was_stopped:
                raise Refused(ExitCode.STOPPED, "told to stop before the other launchers let the program start")
            why = peers.state.over or "launcher 0 does not answer"
            raise Refused(ExitCode.NO_ATTEMPT_LEFT, f"this pod has come to no attempt of the others: {why}")
        self._begin(peers, attempt)
        return attempt

    def _begin(self, peers: Peers, attempt: int, *, message: str = "", output: str = "") -> None:
        """Completes the account of restarts before another attempt starts."""
        peers.state.add_details(message, output)
        self.message.clear()
        self.message.last_line = in_place.line(peers.state.account)
        peers.begin(attempt)

    def _run(self, attempt: int) -> Tuple[ExitResult, List[str]]:
        """How the command ended in an attempt, and the lines that report its progress."""
        environ, peers = self._environment(attempt), self.peers
        process = read_environment(environ)
        folder = self.scratch / str(attempt)
        folder.mkdir()
        metrics_file = folder / "metrics.jsonl"
        environ = child_environment(environ, process, self.command, str(metrics_file))
        progress = frameworks.progress(process, environ, self.command, metrics_file)
        with ExitStack() as stack:
            ends = _listen(folder, stack)
            try:
                result = run(
                    self.command,
                    {
                        **environ,
                        **(ends.variables(environ) if ends else {}),
                        **(peers.program.variables if peers else {}),
                    },
                    self.signals,
                    grace_seconds=process.grace_seconds,
                    keep_output=self.message.is_wanted,
                    on_start=lambda child: self._started(process, child, progress, stack),
                    ends=ends,
                    exit_seconds=FAILED_EXIT_SECONDS if has_peers(process) else None,
                    peers=peers,
                    silence_seconds=process.silence_seconds,
                    on_end=self._announce_end,
                    on_late_stop=self._stop_late,
                )
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.ENOMEM):  # the machine's fault, and may be gone next time
                    raise
                reason = f"command {self.command[0]!r} cannot be started: {error.strerror}"
                raise Refused(ExitCode.CONFIGURATION, f"{reason}; {_way_out(self.command[0])}") from error
        return result, [progress.finish(exit_code_of(result)[0])] if progress else []

    def _environment(self, attempt: int) -> Mapping[str, str]:
        """The environment of an attempt; all but the first have the account of those before."""
        if self.peers is None or not attempt:
            return self.environ
        return {
            **self.environ,
            names.IN_PLACE_ATTEMPT: str(attempt),
            names.IN_PLACE_CAUSE: self.peers.state.cause,
            names.IN_PLACE_ACCOUNT: json.dumps(self.peers.state.account),
        }

    def _started(self, process: Process, child: int, progress: Optional[Progress], stack: ExitStack) -> None:
        """Starts threads, now that the program runs; the stack ends them before the next attempt."""
        if progress is not None:
            progress.start()
        page = serving.serve_in_place(process, self.environ)
        if page is not None:
            stack.callback(page.close)
        if self.peers is not None:
            self.peers.started(child)

    def _announce_end(self, result: ExitResult) -> None:
        """Reports to the other launchers how the program of this one has ended."""
        if self.peers is not None:
            announce_end(self.peers, result, self.message.first_line)

    def _stop_late(self, number: int) -> None:
        """Handles a stop signal that came after the end of the program was announced."""
        peers = self.peers
        if peers is not None and peers.in_place and not peers.was_stopped and not peers.has_finished:
            stop_between(peers, number)


def has_peers(process: Process) -> bool:
    """Whether other processes wait for this one."""
    return isinstance(process, DistributedProcess) and process.num_processes > 1


def _listen(scratch: Path, stack: ExitStack) -> Optional[ProgramEnds]:
    """Where the program reports its end; None: there can be no socket."""
    try:
        return stack.enter_context(ProgramEnds(scratch))
    except OSError as error:
        logger.warning("an uncaught exception of the program is seen only when its process ends: %s", error)
        return None


def _way_out(program: str) -> str:
    """What to write instead of a program that cannot be started."""
    if program.endswith(".py"):
        return f"a Python file needs its interpreter: write [python3, {program}]"
    return "give a program that is in the image"
