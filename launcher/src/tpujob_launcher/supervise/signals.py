"""Signals as values to wait for: none is lost while other code runs, and no code runs inside a handler."""

from __future__ import annotations

import math
import os
import select
import signal
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Type

if TYPE_CHECKING:
    from _typeshed import HasFileno

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""Signals that ask a program to end: Kubernetes and eviction, Ctrl-C, an image's STOPSIGNAL, a closed terminal."""

FORWARDED = (*STOP, signal.SIGUSR1, signal.SIGUSR2)


class SignalQueue:
    """Receives the signals of this process while it is entered; only in the main thread."""

    def __init__(self, *, ends_process: bool = False) -> None:
        """Receives no signals yet.

        `ends_process`: the process ends right after this object; stop signals are then ignored, because they would
        replace the exit code.
        """
        self._ends_process = ends_process
        self._previous: Dict[int, Any] = {}

    def __enter__(self) -> SignalQueue:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._previous_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (*FORWARDED, signal.SIGCHLD):
            # A process under nohup keeps ignoring SIGHUP. SIGINT is handled even if a shell started this process with
            # `&`: Ctrl-C is meant for the whole job.
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._previous[number] = signal.signal(number, _hear)
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_IGN if self._ends_process and number in STOP else handler)
        signal.set_wakeup_fd(self._previous_fd)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, seconds: Optional[float], *others: HasFileno) -> List[int]:
        """The signals since the last call, in order; waits up to `seconds` for the first, with None without limit.

        The wait also ends when one of `others` becomes readable.
        """
        # Not `select`, which refuses descriptors from 1024 on: launcher 0 has a connection to each host.
        sources = select.poll()
        sources.register(self._reader, select.POLLIN)
        for each in others:
            sources.register(each, select.POLLIN)
        found = sources.poll(None if seconds is None else math.ceil(seconds * 1000))
        if self._reader not in [descriptor for descriptor, _ in found]:
            return []
        return list(os.read(self._reader, 4096))


def _hear(number: int, frame: Optional[FrameType]) -> None:
    """Does nothing: the interpreter has already written the number to the wake-up descriptor."""
