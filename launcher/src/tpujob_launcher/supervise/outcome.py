"""How a program ended, and what that means: the exit code of its container, and lines of its message. Pure."""

import signal
from dataclasses import dataclass
from typing import List, Optional, Tuple

from tpujob_contract.exit_codes import ExitCode
from tpujob_contract.reports.termination_message import NOT_ASKED, RETURNED_0, failure_line, stopped_line
from tpujob_launcher.supervise.program_end import ProgramEnd


@dataclass(frozen=True)
class ExitResult:
    """How a program ended."""

    code: int
    """Its exit code as a shell counts it: 128 + n for death by signal n."""
    diagnostics: Tuple[str, ...] = ()
    """What the exit code does not show, for the termination message."""
    output: bytes = b""
    """The last lines of its output, if they were kept."""
    stop_signal: Optional[int] = None
    """The signal that requested the stop, if any."""
    stopped_at: float = 0.0
    """Unix time of that signal, or of the end of a program without one."""
    failure: Optional[ProgramEnd] = None
    """The error with which the program reported its end."""
    ended_by_peer: bool = False
    """Whether it was ended because the program of another host had failed."""
    following: Optional[Tuple[int, str]] = None
    """Exit code and message of a program that ends because of another host's; None: none failed before."""
    other_asked: str = ""
    """Which process of the job was asked to stop before, as in "SIGTERM at process 1 on host h"; empty: none."""


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """The command is not started: the exit code of the container, and why."""

    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


def exit_code_of(result: ExitResult) -> Tuple[int, List[str]]:
    """The exit code of the container, and diagnostics, for a program that has ended."""
    diagnostics = list(result.diagnostics)
    if result.following is not None:
        code, words = result.following
        diagnostics.insert(0, words)
        is_by_signal_or_0 = result.code > 128 or result.code == ExitCode.FINISHED
        if result.ended_by_peer and result.stop_signal is None and is_by_signal_or_0:
            return code, diagnostics
    if result.failure is not None and result.failure.error:
        diagnostics.insert(0, failure_line(result.failure.at, result.failure.error))
    if result.stop_signal is not None:
        name = signal.Signals(result.stop_signal).name
        if result.code == ExitCode.FINISHED:
            told = f"told to stop by {name}, {RETURNED_0}"
            return ExitCode.STOPPED, [*diagnostics, told, stopped_line(result.stopped_at)]
        diagnostics.append(f"told to stop by {name}")
    elif result.code == ExitCode.FINISHED and result.other_asked:
        # As JAX programs do: all save at the step after one was told to stop, and return.
        words = f"another process was told to stop ({result.other_asked}), {RETURNED_0}"
        return ExitCode.STOPPED, [*diagnostics, words, stopped_line(result.stopped_at)]
    elif result.code == ExitCode.STOPPED:
        diagnostics.append(NOT_ASKED)
    if result.code == ExitCode.STOPPED:
        diagnostics.append(stopped_line(result.stopped_at))
    return result.code, diagnostics


def last_words(result: ExitResult) -> bytes:
    """The end of the output; where other things follow the traceback of the program's error there, the traceback.

    A program that calls `sys.exit` has reported why before, and Python prints no traceback of that.
    """
    failure = result.failure
    is_exit = failure is None or failure.error.startswith("SystemExit")
    trace = b"" if failure is None or is_exit else failure.traceback.strip().encode()
    return trace if trace and not result.output.rstrip().endswith(trace.rpartition(b"\n")[2]) else result.output
