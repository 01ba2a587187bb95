"""The end of a process: by signal in every phase, in time, and with the cause in one line.

- A wake-up descriptor and a thread receive the signals: a Python handler would not run during a compilation.
- Whatever happens, the process ends before the grace period does: one deadline, the grace period minus a margin.
- A process that fails reports it to the others (`peers`), and they end at once, naming it.
- A process that makes no progress (`watchdog`) ends with the stacks of all its threads, and so do all others.
- It ends with `os._exit`: interpreter shutdown would wait for peers in JAX's barrier, and for threads of libraries.
"""

import contextlib
import ctypes
import faulthandler
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from tpujob_contract import ContractError, DistributedProcess, ExitCode, Process
from tpujob_contract.reports import report, termination_message
from tpujob_contract.reports.progress_state import ProgressState
from tpujob_trainer.distributed.exit import watchdog
from tpujob_trainer.distributed.exit.stop_request import StopRequest, leaving_seconds
from tpujob_trainer.distributed.exit.watchdog import Watchdog
from tpujob_trainer.distributed.kv_store import CoordinationError
from tpujob_trainer.distributed.peers import End, Peers
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
SAME_REQUEST_SECONDS = 1.0
"""Signals closer together are one request: a terminal's Ctrl-C may come twice, directly and forwarded."""
FAILURE_SECONDS = 5.0
"""In addition to the heartbeat: for a process that sees a broken exchange to learn which peer is lost."""
EXIT_CALLBACK_SECONDS = 5.0
"""Limit for the exit callbacks (the attempt's file on a slow bucket)."""
LAST_SECONDS = 90.0
"""After which a process that leaves is gone even if its interpreter hangs: its launcher no longer watches it."""

_PEER_LOST = re.compile(
    r"gloo|connection (closed|reset) by peer|heartbeat timeout|coordination service|unhealthy|broken pipe",
    re.IGNORECASE,
)
_TIMED_OUT = re.compile(r"timed? ?out|DEADLINE_EXCEEDED", re.IGNORECASE)


def run_to_exit(main: Callable[[StopRequest], int], process: Process | None, *, grace_seconds: float) -> NoReturn:
    """Runs `main` and ends the process with its exit code, or with that of its error. Call it in the main thread.

    Args:
        main: Gets the request to stop; returns the exit code.
        process: Named in the termination message; None: unknown.
        grace_seconds: Time from the request to stop until the process is killed.
    """
    faulthandler.enable()  # A crash in C++ leaves the stacks of Python in the log.
    # So does an interpreter that hangs: the launcher sends this signal before it kills the process.
    faulthandler.register(signal.SIGURG, all_threads=True)
    _Exit(_name(process), grace_seconds).run(main)


def explain(error: BaseException) -> tuple[int, str]:
    """The exit code and one line about the error that ended the run."""
    text = errors.message(error, None)
    if is_lost_peer(error):
        return 1, f"lost another process, whose own log has the cause; seen here: {text}"
    if isinstance(error, ContractError):
        return ExitCode.CONFIGURATION, text
    if isinstance(error, errors.TrainerError):
        return int(error.exit_code), text
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.STOPPED, "interrupted"
    # Only for the classes that storage raises: in any other error, words such as "Forbidden" are the program's own.
    is_refused = isinstance(error, OSError) and storage_errors.is_refused(error)
    return ExitCode.NOT_FOUND if is_refused else 1, f"{type(error).__name__}: {text}"


def is_lost_peer(error: BaseException) -> bool:
    """Whether the error only reflects another process's end, in a collective or in the coordination service."""
    if isinstance(error, CoordinationError):
        return True
    # JAX raises a RuntimeError whose text comes from gloo or from the service; both name the peer by address only.
    return isinstance(error, RuntimeError | ValueError) and bool(_PEER_LOST.search(str(error)))


class _Exit:
    """Ends the process once: the first thread that leaves does it, later ones wait for that."""

    def __init__(self, name: str, grace_seconds: float) -> None:
        self._stop = StopRequest(grace_seconds=grace_seconds, on_joined=self._joined, on_watched=self._watched)
        self._name = name
        self._message_file = termination_message.find(os.environ)
        self._leaving = threading.Lock()
        self._peers: Peers | None = None
        self._watchdog: Watchdog | None = None

    def run(self, main: Callable[[StopRequest], int]) -> NoReturn:
        self._install_signal_handlers()
        try:
            code = int(main(self._stop))
        except SystemExit as error:
            self.leave(*_exited(error))
        except BaseException as error:  # everything has to end here
            if not isinstance(error, errors.TrainerError | ContractError):
                logger.exception("Unexpected")
            if is_lost_peer(error) and self._peers is not None:
                self._leave_after_loss(self._peers, error)
            self.leave(*explain(error), tell=not getattr(error, "is_shared", False))
        if code == ExitCode.STOPPED:
            self._end(code, f"asked to stop{self._by_whom()}; what was committed is there")
        self._end(code, "ended")

    def leave(self, code: int, message: str, *, tell: bool = True) -> NoReturn:
        """Ends the process early; `tell` the others if they do not know yet."""
        if self._peers is not None and tell and code != ExitCode.FINISHED:
            self._peers.fail(End(self._peers.process_id, code, message))
        self._end(code, message)

    def _end(self, code: int, message: str) -> NoReturn:
        if not self._leaving.acquire(blocking=False):
            threading.Event().wait()
        faulthandler.dump_traceback_later(LAST_SECONDS, exit=True)
        try:
            line = f"{self._name}: {message}"
            words = "" if code == ExitCode.FINISHED else line
            # First of all: the cause is reported, whatever hangs or kills the process from now on.
            if words:
                with contextlib.suppress(Exception):  # what cannot be kept is logged below
                    self._leave_message(words)
            if code == ExitCode.STALLED:
                self._stop.stacks = watchdog.all_threads()
                logger.error("Stacks of all threads:\n%s", self._stop.stacks)
            if self._peers is not None:
                self._peers.disconnect()
            self._run_exit_callbacks(code, message)
            if self._stop.final_report is not None:
                with contextlib.suppress(Exception):
                    self._leave_message(words, report.final_line(self._stop.final_report()))
            if code != ExitCode.FINISHED:
                logger.log(logging.INFO if code == ExitCode.STOPPED else logging.ERROR, "Exit %d: %s", code, line)
            with contextlib.suppress(Exception):
                logging.shutdown()
                sys.stdout.flush()
                sys.stderr.flush()
        finally:
            os._exit(code)

    def _leave_message(self, words: str, last_line: str = "") -> None:
        if self._message_file is not None:
            termination_message.write(self._message_file, words, last_line)

    def _run_exit_callbacks(self, code: int, message: str) -> None:
        def say() -> None:
            for word in self._stop.exit_callbacks:
                try:
                    word(code, message)
                except Exception as error:  # noqa: BLE001 - nothing may keep the process from ending
                    logger.warning("At exit: %s", error)

        speaker = threading.Thread(target=say, daemon=True, name="exit-callbacks")
        speaker.start()
        speaker.join(min(EXIT_CALLBACK_SECONDS, self._seconds_to_leave() / 2))

    def _seconds_to_leave(self) -> float:
        return self._stop.seconds_left() + leaving_seconds(self._stop.grace_seconds)

    def _why_unsaved(self) -> str:
        """Why the last save was not committed, in parentheses; empty if the report has no reason."""
        said = self._stop.final_report().get("checkpoint_message") if self._stop.final_report is not None else None
        return f" ({said})" if said else ""

    def _joined(self, peers: Peers) -> None:
        self._peers = peers
        _delay_aborts()
        peers.start(
            on_failure=self._receive_failure,
            progress_state=lambda: self._watchdog.progress_state() if self._watchdog else ProgressState(),
        )

    def _receive_failure(self, end: End) -> NoReturn:
        """Ends this process because of another one."""
        self._end(end.code, end.message)

    def _watched(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        watchdog.start(lambda noticed: self._stalled(noticed, watchdog.progress_state()))

    def _stalled(self, noticed: str, progress_state: ProgressState) -> NoReturn:
        if self._peers is None:
            self._end(ExitCode.STALLED, f"{noticed}: {progress_state}")
        first = self._peers.fail(End(self._peers.process_id, ExitCode.STALLED, noticed, "stalled"))
        self._end(first.code, first.message)

    def _leave_after_loss(self, peers: Peers, error: BaseException) -> NoReturn:
        """Ends the process after a failed exchange: waits until a peer is lost or has reported its end.

        If that does not happen and the exchange timed out, a process is behind the others: this is a stall.
        """
        if (end := peers.wait(peers.heartbeat_seconds + FAILURE_SECONDS)) is not None:
            self._receive_failure(end)
        if _TIMED_OUT.search(str(error)):
            self._stalled(
                errors.message(error, None), self._watchdog.progress_state() if self._watchdog else ProgressState()
            )
        self.leave(*explain(error))

    def _install_signal_handlers(self) -> None:
        receiver, sender = socket.socketpair()
        sender.setblocking(False)
        for number in SIGNALS:
            # The handler itself does nothing: its presence makes the interpreter write to the descriptor.
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        # The thread keeps `sender` open as long as it lives.
        threading.Thread(target=self._handle_signals, args=(receiver, sender), daemon=True, name="signals").start()

    def _handle_signals(self, receiver: socket.socket, sender: socket.socket) -> NoReturn:
        asked_at = 0.0
        while True:
            receiver.settimeout(max(self._stop.seconds_left(), 0.001) if self._stop.requested else None)
            try:
                heard = [signal.Signals(number).name for number in receiver.recv(16) if number in SIGNALS]
            except TimeoutError:
                self.leave(
                    ExitCode.STOPPED,
                    f"asked to stop{self._by_whom()}, and the grace period is over; what was not committed is lost"
                    f"{self._why_unsaved()}",
                )
            if not heard:
                continue
            if not self._stop.requested:
                asked_at = time.monotonic()
                self._stop.request()
                logger.info("%s: asked to stop, %.0f s left", heard[0], self._stop.seconds_left())
                if not self._stop.is_in_loop:
                    self.leave(ExitCode.STOPPED, f"{heard[0]} outside the training loop: nothing to save")
                if self._peers is not None:
                    self._peers.announce_stop(heard[0])
            elif time.monotonic() - asked_at > SAME_REQUEST_SECONDS:
                self.leave(ExitCode.STOPPED, f"{heard[0]} again: left at once; what was not committed is lost")

    def _by_whom(self) -> str:
        return f" ({self._peers.asked})" if self._peers is not None and self._peers.asked else ""


def _delay_aborts() -> None:
    """Makes a thread that aborts this process sleep for six seconds first.

    When process 0 is gone, JAX's client notices within milliseconds and aborts, in a C++ thread, without naming the
    lost process. Meanwhile our own threads report it and leave. The handler is C's `sleep`, called with the signal's
    number as seconds: no Python code could run there.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.signal.restype = ctypes.c_void_p
        libc.signal(signal.SIGABRT, ctypes.cast(libc.sleep, ctypes.c_void_p))


def _exited(error: SystemExit) -> tuple[int, str]:
    """The exit code and message of a program that calls sys.exit during its work: 0 is not a success then."""
    if isinstance(error.code, str):
        return 1, error.code
    code = error.code or 0
    return code or 1, f"something called sys.exit({code}), which is not how a run ends"


def _name(process: Process | None) -> str:
    """The name of this process for messages: "host-1: process 1 of 4"."""
    host = socket.gethostname()
    if isinstance(process, DistributedProcess):
        return f"{host}: process {process.process_id} of {process.num_processes}"
    return host
