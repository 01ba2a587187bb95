"""How a process ends: heard in every phase, in time, and with the cause in one line.

- A wake-up descriptor and a thread hear the signals: a Python handler would sleep through a compile.
- Whatever happens, the process is gone before the grace period is: one deadline, grace minus a margin.
- Who fails says so to the others, and they end at once, naming it.
- It ends by `os._exit`: interpreter shutdown would wait for peers in JAX's barrier, and for threads of libraries.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tpujob_contract import ContractError, DistributedProcess, ExitCode, environment, read_environment
from tpujob_contract.exit_codes import FATAL
from tpujob_trainer import errors
from tpujob_trainer.coordination import Coordination, CoordinationError, Failure
from tpujob_trainer.stopping import StopRequest, margin

__all__ = ["StopRequest", "explain", "run_to_exit"]

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
DEFAULT_GRACE_SECONDS = 30.0
SAME_REQUEST_SECONDS = 1.0
"""Signals closer together are one request: a terminal's Ctrl-C may come twice, directly and forwarded."""
LISTEN_SECONDS = 60.0
"""Length of one question for failures of others; the answer comes at once when there is one."""
HEARING_SECONDS = 1.0
"""Time for the others to hear of a failure, and for one that lost a peer to hear which."""
LAST_WORDS_SECONDS = 5.0
"""Limit for what is done at exit (the attempt's file on a slow bucket)."""
TERMINATION_LOG = Path("/dev/termination-log")
TERMINATION_BYTES = 4096
"""Kubernetes reads no more."""

_PEER_LOST = re.compile(
    r"gloo|connection (closed|reset) by peer|heartbeat timeout|coordination service|unhealthy|broken pipe",
    re.IGNORECASE,
)


def run_to_exit(
    main: Callable[[StopRequest], int], *, environ: Mapping[str, str] = os.environ, grace_seconds: float | None = None
) -> NoReturn:
    """Runs `main` and ends the process with its exit code, or with that of what it raised. Call it in the main thread.

    Args:
        main: Gets the request to stop; returns the exit code.
        environ: Where the contract's variables are.
        grace_seconds: Time from being asked to stop to being killed; default from the environment.
    """
    _Exit(environ, _grace(environ) if grace_seconds is None else grace_seconds).run(main)


def explain(error: BaseException) -> tuple[int, str]:
    """Exit code and one line for what ended the run."""
    text = _one_line(error)
    if is_lost_peer(error):
        return 1, _lost("another process", text)
    if isinstance(error, ContractError):
        return ExitCode.CONFIGURATION, text
    if isinstance(error, errors.TrainerError):
        return int(error.exit_code), text
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.STOPPED, "interrupted"
    return 1, f"{type(error).__name__}: {text}"


def is_lost_peer(error: BaseException) -> bool:
    """Whether the error is the echo of another process's end, in a collective or in the coordination service."""
    if isinstance(error, CoordinationError):
        return True
    # JAX raises a RuntimeError whose text comes from gloo or from the service; both name the peer by address only.
    return isinstance(error, RuntimeError | ValueError) and bool(_PEER_LOST.search(str(error)))


def after(failure: Failure, talk: Coordination, silent: Sequence[int]) -> tuple[int, str]:
    """Exit code and message of a process that ends because another one did.

    A code that decides about the next try is everybody's, whichever pod is looked at first; else this is a lost peer.

    Args:
        failure: The first that was told of.
        talk: Knows the hosts.
        silent: Who no longer answers: the lost ones, when the failure is an echo of theirs.
    """
    if failure.is_echo:
        return 1, _lost(", ".join(map(talk.name, silent)) or "another process", failure.message)
    code = failure.code if failure.code in (*FATAL, ExitCode.STOPPED) else 1
    return code, f"ended with {talk.name(failure.process)}, which was first: {failure.message}"


class _Exit:
    """The one way out: the first thread that leaves ends the process, later ones wait for that."""

    def __init__(self, environ: Mapping[str, str], grace_seconds: float) -> None:
        self._stop = StopRequest(grace_seconds=grace_seconds, on_joined=self._joined)
        self._environ = environ
        self._leaving = threading.Lock()
        self._talk: Coordination | None = None

    def run(self, main: Callable[[StopRequest], int]) -> NoReturn:
        self._hear_signals()
        try:
            code = int(main(self._stop))
        except SystemExit as error:
            if isinstance(error.code, str):
                self.leave(1, error.code)
            self.leave(error.code or 0, "ended")
        except BaseException as error:  # everything has to end here
            if is_lost_peer(error) and self._talk is not None:
                self._leave_after_loss(self._talk, error)
            if not isinstance(error, errors.TrainerError | ContractError):
                logger.exception("Unexpected")
            self.leave(*explain(error), tell=not getattr(error, "is_shared", False))
        self._end(code, "asked to stop; what was committed is there" if code == ExitCode.STOPPED else "ended")

    def leave(self, code: int, message: str, *, tell: bool = True) -> NoReturn:
        """Ends the process out of order; `tell` the others when they do not know yet."""
        if self._talk is not None and code != ExitCode.FINISHED:
            if tell:
                self._talk.announce_failure(code, message)
            if self._talk.process_id == 0:
                # The service ends with this process, and the others would only learn that it is gone.
                time.sleep(min(HEARING_SECONDS, self._stop.seconds_left()))
        self._end(code, message)

    def _end(self, code: int, message: str) -> NoReturn:
        if not self._leaving.acquire(blocking=False):
            threading.Event().wait()
        try:
            self._say_last_words(code, message)
            if code != ExitCode.FINISHED:
                line = f"{_who(self._environ)}: {message}"
                self._write_termination_message(line)
                logger.log(logging.INFO if code == ExitCode.STOPPED else logging.ERROR, "Exit %d: %s", code, line)
            with contextlib.suppress(Exception):
                logging.shutdown()
                sys.stdout.flush()
                sys.stderr.flush()
        finally:
            os._exit(code)

    def _say_last_words(self, code: int, message: str) -> None:
        def say() -> None:
            for word in self._stop.last_words:
                try:
                    word(code, message)
                except Exception as error:  # noqa: BLE001 - nothing may keep the process from ending
                    logger.warning("At exit: %s", error)

        speaker = threading.Thread(target=say, daemon=True, name="last-words")
        speaker.start()
        speaker.join(min(LAST_WORDS_SECONDS, self._stop.seconds_left() + margin(self._stop.grace_seconds) / 2))

    def _write_termination_message(self, line: str) -> None:
        given = self._environ.get(environment.TERMINATION_LOG)
        path = Path(given) if given else TERMINATION_LOG
        if not given and not path.exists():
            return
        try:
            path.write_bytes(line.encode()[:TERMINATION_BYTES])
        except OSError as error:
            logger.warning("Cannot write the termination message to %s: %s", path, error)

    def _joined(self, talk: Coordination) -> None:
        self._talk = talk
        if talk.num_processes > 1:
            threading.Thread(target=self._hear_failures, args=(talk,), name="peers", daemon=True).start()

    def _hear_failures(self, talk: Coordination) -> None:
        failure = None
        while failure is None:
            try:
                failure = talk.first_failure(limit_seconds=LISTEN_SECONDS)
            except CoordinationError:
                return  # All ended in order, or JAX's own heartbeat ends this process.
        if failure.process != talk.process_id:
            silent = talk.absent(limit_seconds=HEARING_SECONDS) if failure.is_echo else []
            self.leave(*after(failure, talk, silent), tell=False)

    def _leave_after_loss(self, talk: Coordination, error: BaseException) -> NoReturn:
        """Finds out who is lost. If somebody has said why it ends, the thread that hears it leaves meanwhile."""
        echo = Failure(talk.process_id, 1, _one_line(error), is_echo=True)
        talk.announce_failure(echo.code, echo.message, is_echo=True)
        silent = talk.absent(limit_seconds=HEARING_SECONDS)
        self.leave(*after(echo, talk, silent), tell=False)

    def _hear_signals(self) -> None:
        receiver, sender = socket.socketpair()
        sender.setblocking(False)
        for number in SIGNALS:
            # The handler itself does nothing: its presence makes the interpreter write to the descriptor.
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        # The thread keeps `sender` open as long as it lives.
        threading.Thread(target=self._obey, args=(receiver, sender), daemon=True, name="signals").start()

    def _obey(self, receiver: socket.socket, sender: socket.socket) -> NoReturn:
        asked_at = 0.0
        while True:
            receiver.settimeout(max(self._stop.seconds_left(), 0.001) if self._stop.requested else None)
            try:
                heard = [signal.Signals(number).name for number in receiver.recv(16) if number in SIGNALS]
            except TimeoutError:
                self._end(
                    ExitCode.STOPPED, "asked to stop, and the grace period is over; what was not committed is lost"
                )
            if not heard:
                continue
            if not self._stop.requested:
                asked_at = time.monotonic()
                self._stop.request()
                logger.info("%s: asked to stop, %.0f s left", heard[0], self._stop.seconds_left())
                if not self._stop.is_in_loop:
                    self.leave(ExitCode.STOPPED, f"{heard[0]} outside the training loop: nothing to save")
            elif time.monotonic() - asked_at > SAME_REQUEST_SECONDS:
                self._end(ExitCode.STOPPED, f"{heard[0]} again: left at once; what was not committed is lost")


def _lost(who: str, text: str) -> str:
    return f"lost {who}, whose own log has the cause; seen here: {text}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _grace(environ: Mapping[str, str]) -> float:
    text = environ.get(environment.GRACE_SECONDS, "")
    return float(text) if re.fullmatch(r"[0-9]+", text) else DEFAULT_GRACE_SECONDS


def _host() -> str:
    return socket.gethostname()


def _who(environ: Mapping[str, str]) -> str:
    with contextlib.suppress(ContractError):
        process = read_environment(environ)
        if isinstance(process, DistributedProcess):
            return f"{_host()}: process {process.process_id} of {process.num_processes}"
    return _host()
