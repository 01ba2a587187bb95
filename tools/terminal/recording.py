"""The timed output of a command on a terminal.

The file format is asciicast 2 (docs.asciinema.org/manual/asciicast/v2): a header, then one JSON array for each part.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

WIDTH, HEIGHT = 96, 24
PART_SECONDS = 1.0
"""Output within this time becomes one part."""
_OVERWRITTEN = re.compile(r"[^\n]*(?=\r\x1b\[2K)")


@dataclass(frozen=True)
class Part:
    """A part of the output."""

    seconds: float
    """From the start of the command to the end of the part."""
    text: str
    """Includes control sequences."""


@dataclass(frozen=True)
class Recording:
    """A command and its output."""

    command: str
    parts: tuple[Part, ...]

    def write(self, file: Path) -> None:
        """Writes it as an asciicast."""
        header = {"version": 2, "width": WIDTH, "height": HEIGHT, "command": self.command}
        lines: list[object] = [header, *([round(part.seconds, 1), "o", part.text] for part in self.parts)]
        file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))

    @classmethod
    def read(cls, file: Path) -> Recording:
        """Reads an asciicast that `write` wrote."""
        header, *parts = map(json.loads, file.read_text().splitlines())
        return cls(header["command"], tuple(Part(seconds, text) for seconds, _, text in parts))


class CommandFailed(Exception):  # noqa: N818 - an answer, not a fault
    """The command did not exit with 0; the message is the end of its output."""


def record(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> Recording:
    """Runs a command on a new pseudo-terminal; returns the recording.

    Raises:
        CommandFailed: Its exit code is not 0.
    """
    began = time.monotonic()
    terminal, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environ = {**environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdin=its_end, stdout=its_end, stderr=its_end, start_new_session=True
    ) as process:
        os.close(its_end)
        parts = tuple(joined((time.monotonic() - began, text) for text in _output(terminal)))
    os.close(terminal)
    if process.returncode != 0:
        raise CommandFailed("".join(part.text for part in parts)[-2000:])
    return Recording(" ".join(command), parts)


def joined(printed: Iterator[tuple[float, str]]) -> Iterator[Part]:
    """Output joined to parts of `PART_SECONDS`, without text that is erased within the same part."""
    end, text = 0.0, ""
    for seconds, more in printed:
        if text and seconds >= end:
            yield Part(end, _OVERWRITTEN.sub("", text))
            text = ""
        if not text:
            end = seconds + PART_SECONDS
        text += more
    if text:
        yield Part(end, _OVERWRITTEN.sub("", text))


def _output(terminal: int) -> Iterator[str]:
    """The output, until the terminal is closed: then a read fails with an error on Linux."""
    rest = b""
    with contextlib.suppress(OSError):
        while read := os.read(terminal, 65536):
            whole = rest + read
            # A multibyte character may be split between two reads.
            text = whole.decode(errors="ignore")
            rest = whole[len(text.encode()) :]
            yield text
