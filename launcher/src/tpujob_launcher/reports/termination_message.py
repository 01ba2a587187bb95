"""The launcher's termination message, for a program that left none of its own.

It must explain the end by itself, since the pod and its log may be gone seconds later.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Mapping, Sequence

from tpujob_contract import exit_codes
from tpujob_contract.reports import termination_message
from tpujob_contract.reports.report import FINAL_PREFIX, split_final_report
from tpujob_contract.reports.termination_message import DEFAULT_PATH, LIMIT_BYTES

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class TerminationMessage:
    """The file of the message, empty until a process writes why the container ended."""

    def __init__(self, environ: Mapping[str, str], default_path: Path = DEFAULT_PATH) -> None:
        """Finds the file and empties it, so that its later content is from this container."""
        path = termination_message.find(environ, default_path)
        self._path = path if path is not None and termination_message.write(path, "") else None
        self.last_line = ""
        """For programs, after all words."""

    @property
    def is_wanted(self) -> bool:
        """Whether anybody reads a message."""
        return self._path is not None

    @property
    def first_line(self) -> str:
        """Of what the program has written; empty where it has written nothing."""
        return self.text.partition("\n")[0]

    @property
    def text(self) -> str:
        """What the program has written; empty where it has written nothing."""
        if self._path is None or not self._path.exists():
            return ""
        return self._path.read_text(errors="replace")

    def clear(self) -> None:
        """Empties the file: another attempt begins."""
        if self._path is not None:
            termination_message.write(self._path, "")

    def write(self, exit_code: int, diagnostics: Sequence[str] = (), output: bytes = b"") -> None:
        """Writes the message, with the program's own words where it has left some: it knows better."""
        if self._path is None:
            return
        words, report = split_final_report(self.text)
        last = self.last_line
        if not self.text:
            limit = LIMIT_BYTES - len(last.encode()) - bool(last)
            termination_message.write(self._path, compose(exit_code, diagnostics, output, limit), last)
        elif last:
            lines = [last] if report is None else [FINAL_PREFIX + report, last]
            termination_message.write(self._path, words, "\n".join(lines))


def compose(exit_code: int, diagnostics: Sequence[str], output: bytes, limit: int = LIMIT_BYTES) -> bytes:
    """The text of a message: the exit code in words, diagnostics, and as many of the last lines of output as fit.

    Args:
        exit_code: The exit code of the container.
        diagnostics: Lines that say more about the end.
        output: The end of the program's output, in any encoding, with or without terminal colours.
        limit: Of the text, in bytes.
    """
    head = "\n".join([f"exit code {exit_codes.describe(exit_code)}", *diagnostics]).encode()[:limit]
    lines: List[bytes] = []
    room = limit - len(head)
    for line in reversed(_printable(output)):
        encoded = b"\n" + line.encode()
        if len(encoded) > room:
            if not lines and room > 1:  # one endless line: its end, from a whole character on
                lines.append(b"\n" + encoded[1 - room :].decode(errors="ignore").encode())
            break
        lines.append(encoded)
        room -= len(encoded)
    return head.decode(errors="ignore").encode() + b"".join(reversed(lines))


def _printable(output: bytes) -> List[str]:
    text = _ESCAPES.sub("", output.decode(errors="replace"))
    lines = (_CONTROL.sub("", line).rstrip() for line in re.split(r"[\r\n]+", text))
    return [line for line in lines if line]
