"""The launcher's termination message, for a program that wrote none itself.

It must explain the end by itself, because the pod and its log may be gone seconds later.
"""

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
        """Finds the file and empties it, so that later content is from this container."""
        path = termination_message.find(environ, default_path)
        self._path = path if path is not None and termination_message.write(path, "") else None
        self.last_line = ""
        """A line for programs, after the text for people."""

    @property
    def is_wanted(self) -> bool:
        """Whether there is a file for the message."""
        return self._path is not None

    @property
    def first_line(self) -> str:
        """The first line of the message that the program has written; empty if it has written none."""
        return self.text.partition("\n")[0]

    @property
    def text(self) -> str:
        """The message that the program has written; empty if it has written none."""
        if self._path is None or not self._path.exists():
            return ""
        return self._path.read_text(errors="replace")

    def clear(self) -> None:
        """Empties the file before another attempt starts."""
        if self._path is not None:
            termination_message.write(self._path, "")

    def write(self, exit_code: int, diagnostics: Sequence[str] = (), output: bytes = b"") -> None:
        """Writes the message; if the program has written one, keeps its text and only adds `last_line`."""
        if self._path is None:
            return
        words, report = split_final_report(self.text)
        last = self.last_line
        if not self.text:
            limit = LIMIT_BYTES - len(last.encode(errors="backslashreplace")) - bool(last)
            termination_message.write(self._path, compose(exit_code, diagnostics, output, limit), last)
        elif last:
            lines = [last] if report is None else [FINAL_PREFIX + report, last]
            termination_message.write(self._path, words, "\n".join(lines))


def compose(exit_code: int, diagnostics: Sequence[str], output: bytes, limit: int = LIMIT_BYTES) -> bytes:
    """The text of a message: the exit code in words, diagnostics, and as many of the last lines of output as fit.

    Args:
        exit_code: The exit code of the container.
        diagnostics: Further lines about the end.
        output: The end of the program's output, in any encoding, with or without terminal colors.
        limit: Most bytes of the text.
    """
    words = "\n".join([f"exit code {exit_codes.describe(exit_code)}", *diagnostics])
    head = words.encode(errors="backslashreplace")[:limit]
    lines: List[bytes] = []
    room = limit - len(head)
    for line in reversed(_printable(output)):
        encoded = b"\n" + line.encode()
        if len(encoded) > room:
            if not lines and room > 1:  # one very long line: keep its end, starting with a whole character
                lines.append(b"\n" + encoded[1 - room :].decode(errors="ignore").encode())
            break
        lines.append(encoded)
        room -= len(encoded)
    return head.decode(errors="ignore").encode() + b"".join(reversed(lines))


def _printable(output: bytes) -> List[str]:
    text = _ESCAPES.sub("", output.decode(errors="replace"))
    lines = (_CONTROL.sub("", line).rstrip() for line in re.split(r"[\r\n]+", text))
    return [line for line in lines if line]
