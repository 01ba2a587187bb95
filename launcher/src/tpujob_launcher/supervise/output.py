"""Passes a child's output on, byte for byte as it arrives, and keeps its last lines.

Each stream has a thread that may block, so that the child behaves as without the launcher: a slow reader slows the
child, a reader that left breaks its pipe, and neither keeps the launcher from handling signals.
"""

import logging
import os
import select
import threading
import time
from typing import Callable, Dict, List, Tuple

logger = logging.getLogger(__name__)

STDOUT, STDERR = 1, 2
_CHUNK = 65536
_TURN_SECONDS = 0.1


class Tail:
    """The last lines of several output streams."""

    def __init__(self, limit_bytes: int = 3072) -> None:
        """Keeps this many bytes of each stream; the default leaves room in a termination message for the other one."""
        self._limit = limit_bytes
        self._kept: Dict[int, bytes] = {}
        self.heard_at = time.monotonic()
        """Monotonic: when data last arrived from any stream; initially the time of creation."""

    def feed(self, stream: int, data: bytes) -> None:
        """Takes data of a stream; only one thread may call this for a stream."""
        self.heard_at = time.monotonic()
        self._kept[stream] = (self._kept.get(stream, b"") + data)[-self._limit :]

    def last_lines(self) -> bytes:
        """The last lines of stdout, then those of stderr.

        Not in the order of arrival: Python writes a traceback to stderr before it flushes kilobytes of buffered stdout.
        """
        return b"\n".join(self._whole_lines(kept) for _, kept in sorted(self._kept.items()) if kept)

    def _whole_lines(self, kept: bytes) -> bytes:
        _, newline, rest = kept.partition(b"\n")
        is_cut = newline and rest and len(kept) == self._limit
        return (rest if is_cut else kept).rstrip(b"\n")


class Output:
    """Pipes from the stdout and stderr of one child to our own stdout and stderr."""

    def __init__(self) -> None:
        self.tail = Tail()
        self._threads: List[threading.Thread] = []
        self._pipes: List[Tuple[int, int, int]] = [(*os.pipe(), STDOUT)]
        # If both are the same file, one pipe keeps the order between them.
        if not os.path.sameopenfile(STDOUT, STDERR):
            self._pipes.append((*os.pipe(), STDERR))
        self.stdout = self._pipes[0][1]
        """The descriptor that the child gets as its stdout."""
        self.stderr = self._pipes[-1][1]

    def start(self) -> None:
        """Starts passing on output, and closes our copy of the child's ends; call it once the child has started."""
        for reader, writer, target in self._pipes:
            os.close(writer)
            thread = threading.Thread(target=_pass_on, args=(reader, target, self.tail), daemon=True)
            thread.start()
            self._threads.append(thread)

    def finish(self, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """Waits until all output is passed on, and calls `meanwhile`; returns False if that takes longer."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            while thread.is_alive() and time.monotonic() < deadline:
                thread.join(min(_TURN_SECONDS, max(0.0, deadline - time.monotonic())))
                meanwhile()
        return not any(thread.is_alive() for thread in self._threads)


def _pass_on(source: int, target: int, tail: Tail) -> None:
    try:
        while True:
            chunk = os.read(source, _CHUNK)
            if not chunk:
                return
            tail.feed(target, chunk)
            _write(target, chunk)
    except BrokenPipeError:
        pass  # the reader is gone: closing our end breaks the child's pipe, too
    finally:
        os.close(source)


def _write(target: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        try:
            rest = rest[os.write(target, rest) :]
        except BlockingIOError:  # a process that shares the descriptor made it non-blocking
            select.select([], [target], [])
        except BrokenPipeError:
            raise
        except OSError as error:  # for example a full disk: training can go on without the log
            logger.warning("output lost: %d bytes for descriptor %d: %s", len(rest), target, error)
            return
