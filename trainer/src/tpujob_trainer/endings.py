"""How a process ends: heard in every phase, in time, and with the cause in one line.

- A wake-up descriptor and a thread hear the signals: a Python handler would sleep through a compile.
- Whatever happens, the process is gone before the grace period is: one deadline, grace minus a margin.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from tpujob_contract import ContractError, DistributedProcess, ExitCode, environment, read_environment
from tpujob_trainer import errors
from tpujob_trainer.coordination import CoordinationError

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
DEFAULT_GRACE_SECONDS = 30.0
SAME_REQUEST_SECONDS = 1.0
"""Signals closer together are one request: a terminal's Ctrl-C may come twice, directly and forwarded."""
LAST_WORDS_SECONDS = 5.0
"""Limit for what is done at exit (the attempt's file on a slow bucket)."""
TERMINATION_LOG = Path("/dev/termination-log")
TERMINATION_BYTES = 4096
"""Kubernetes reads no more."""

_PEER_LOST = re.compile(
    r"gloo|connection (closed|reset) by peer|heartbeat timeout|coordination service"
    r"|unhealthy|broken pipe|preempted task",
    re.IGNORECASE,
)

AtExit = Callable[[int, str], None]
"""Called with the exit code and the message, at most for a few seconds."""


class StopRequest:
    """Whether, and since when, this process is asked to stop. Safe to read from any thread."""

    def __init__(self, *, grace_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deadline: float | None = None
        self._grace = grace_seconds
        self._in_loop = threading.Event()
        self._at_exit: list[AtExit] = []

    @property
    def requested(self) -> bool:
        """Whether the process was asked to stop."""
        return self._deadline is not None

    def seconds_left(self) -> float:
        """Time until the process ends whatever it is doing; infinite while it is not asked to stop."""
        return float("inf") if self._deadline is None else max(self._deadline - self._clock(), 0.0)

    def entered_loop(self) -> None:
        """From here on the loop looks at `requested` and stops in order."""
        self._in_loop.set()

    def left_loop(self) -> None:
        """From here on, as before the loop, a request ends the process at once."""
        self._in_loop.clear()

    @property
    def is_in_loop(self) -> bool:
        """Whether the loop looks at `requested`."""
        return self._in_loop.is_set()

    def at_exit(self, last_words: AtExit) -> None:
        """Has something done with the exit code and message before the process is gone."""
        self._at_exit.append(last_words)

    def request(self) -> None:
        """Asks to stop, as the first signal does."""
        self._deadline = self._clock() + self._grace - margin(self._grace)


def margin(grace_seconds: float) -> float:
    """Seconds kept between our own end and the kill: a tenth of the grace period, 1 to 10 s."""
    return min(max(grace_seconds / 10, 1.0), 10.0)


def run_to_exit(
    main: Callable[[StopRequest], int], *, environ: Mapping[str, str] = os.environ, grace_seconds: float | None = None
) -> NoReturn:
    """Runs `main` and ends the process with its exit code, or with that of what it raised. Call it in the main thread.

    Args:
        main: Gets the request to stop; returns the exit code.
        environ: Where the contract's variables are.
        grace_seconds: Time from being asked to stop to being killed; default from the environment.
    """
    if grace_seconds is None:
        grace_seconds = _grace(environ)
    stop = StopRequest(grace_seconds=grace_seconds)
    exit_ = _Exit(stop, environ)
    _listen(stop, exit_)
    try:
        code, message = int(main(stop)), ""
        if code != ExitCode.FINISHED:
            message = "asked to stop" if code == ExitCode.STOPPED else "ended"
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        message = str(error.code) if isinstance(error.code, str) else ""
    except BaseException as error:  # everything has to end here
        code, message = explain(error)
        if not isinstance(error, errors.TrainerError | ContractError):
            logger.exception("Unexpected")
    exit_.leave(code, message)


def explain(error: BaseException) -> tuple[int, str]:
    """Exit code and one line for what ended the run."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ContractError):
        return ExitCode.CONFIGURATION, text
    if isinstance(error, CoordinationError):
        return error.exit_code, f"lost another process: {text}; its own log has the cause"
    if isinstance(error, errors.TrainerError):
        return int(error.exit_code), text
    if isinstance(error, RuntimeError) and _PEER_LOST.search(text):
        return 1, f"lost another process: {text}; its own log has the cause"
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.STOPPED, "interrupted"
    return 1, f"{type(error).__name__}: {text}"


def _grace(environ: Mapping[str, str]) -> float:
    text = environ.get(environment.GRACE_SECONDS, "")
    return float(text) if re.fullmatch(r"[0-9]+", text) else DEFAULT_GRACE_SECONDS


def _who(environ: Mapping[str, str]) -> str:
    host = socket.gethostname()
    with contextlib.suppress(ContractError):
        process = read_environment(environ)
        if isinstance(process, DistributedProcess):
            return f"{host}: process {process.process_id} of {process.num_processes}"
    return host


class _Exit:
    """The one way out: the first caller ends the process, later ones wait for that."""

    def __init__(self, stop: StopRequest, environ: Mapping[str, str]) -> None:
        self._stop = stop
        self._environ = environ
        self._first = threading.Lock()

    def leave(self, code: int, message: str) -> NoReturn:
        if not self._first.acquire(blocking=False):
            threading.Event().wait()
        try:
            self._last_words(code, message)
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

    def _last_words(self, code: int, message: str) -> None:
        def speak() -> None:
            for word in self._stop._at_exit:  # noqa: SLF001 - two halves of one thing
                try:
                    word(code, message)
                except Exception as error:  # noqa: BLE001 - nothing may keep the process from ending
                    logger.warning("At exit: %s", error)

        limit = min(LAST_WORDS_SECONDS, self._stop.seconds_left() + margin(self._stop._grace) / 2)  # noqa: SLF001
        speaker = threading.Thread(target=speak, daemon=True, name="last-words")
        speaker.start()
        speaker.join(limit)

    def _write_termination_message(self, line: str) -> None:
        given = self._environ.get(environment.TERMINATION_LOG)
        path = Path(given) if given else TERMINATION_LOG
        if not given and not path.exists():
            return
        try:
            path.write_bytes(line.encode()[:TERMINATION_BYTES])
        except OSError as error:
            logger.warning("Cannot write the termination message to %s: %s", path, error)


def _listen(stop: StopRequest, exit_: _Exit) -> None:
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    for number in SIGNALS:
        # The handler itself does nothing: its presence makes the interpreter write to the descriptor.
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    # `sender` lives as long as the thread.
    threading.Thread(target=_hear, args=(receiver, sender, stop, exit_), daemon=True, name="signals").start()


def _hear(receiver: socket.socket, sender: socket.socket, stop: StopRequest, exit_: _Exit) -> None:
    first = 0.0
    while True:
        receiver.settimeout(None if not stop.requested else stop.seconds_left() or 0.001)
        try:
            numbers = receiver.recv(16)
        except TimeoutError:
            exit_.leave(ExitCode.STOPPED, "asked to stop, and the grace period is over; what was not committed is lost")
        asked = [signal.Signals(n) for n in numbers if n in SIGNALS]
        if not asked:
            continue
        if not stop.requested:
            first = time.monotonic()
            stop.request()
            logger.info("%s: asked to stop, %.0f s left", asked[0].name, stop.seconds_left())
            if not stop.is_in_loop:
                exit_.leave(ExitCode.STOPPED, f"{asked[0].name} before or after the training loop: nothing to save")
        elif time.monotonic() - first > SAME_REQUEST_SECONDS:
            exit_.leave(ExitCode.STOPPED, f"{asked[0].name} again: left at once; what was not committed is lost")
