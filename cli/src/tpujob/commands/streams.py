"""Standard output and standard error that may go away: a pager that is left, a full disk, a terminal that is closed."""

import errno
import io
import os
import signal
import sys
from typing import Any, TextIO


def stream(descriptor: int, *, goes_on: bool) -> TextIO:
    """A text stream on a descriptor, to which a name that no encoding has is written with escapes.

    Args:
        descriptor: 1 or 2.
        goes_on: Whether the program goes on without an output that is gone, as a run does, or ends.
    """
    encoding = getattr((sys.stdout, sys.stderr)[descriptor - 1], "encoding", None) or "utf-8"
    buffered = io.BufferedWriter(_Output(descriptor, goes_on=goes_on))
    return io.TextIOWrapper(buffered, encoding, "backslashreplace", line_buffering=True, write_through=descriptor == 2)


class _Output(io.FileIO):
    def __init__(self, descriptor: int, *, goes_on: bool) -> None:
        try:
            os.fstat(descriptor)
        except OSError:  # closed by the shell: `>&-`
            _discard(descriptor)
        super().__init__(descriptor, "wb", closefd=False)
        self._goes_on = goes_on

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError as error:
            _discard(self.fileno())
            if self._goes_on:
                return len(data)
            if error.errno == errno.EPIPE:
                raise SystemExit(128 + signal.SIGPIPE) from None
            name = "standard output" if self.fileno() == 1 else "standard error"
            raise SystemExit(f"cannot write to {name}: {error.strerror}") from None


def _discard(descriptor: int) -> None:
    """Sends all further output of a descriptor to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
