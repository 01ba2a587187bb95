"""The lines on the screen after each part of a recording.

It knows what rich writes: text, line feeds, carriage returns, colours, and the erasing of whole lines on the way up.
Anything else is an error, not a wrong picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.terminal.recording import Recording

_TOKEN = re.compile(
    r"\x1b\[(?P<argument>[0-9;?]*)(?P<control>[A-Za-z])|(?P<plain>[^\x00-\x1f]+)|(?P<move>[\r\n])|(?P<odd>.)", re.S
)
_CURSOR = ("?25l", "?25h")


class UnknownControl(ValueError):  # noqa: N818 - it is what the name says
    """A control sequence that the replay does not know; the message is the sequence."""


class Screen:
    """Lines with their colours as ANSI sequences, and where the cursor is."""

    def __init__(self) -> None:
        """An empty screen."""
        self.lines = [""]
        self._row = 0
        self._is_at_start = True

    def write(self, text: str) -> None:
        """Shows what is printed.

        Raises:
            UnknownControl: There is something in it that does not belong to plain output of rich.
        """
        for token in _TOKEN.finditer(text):
            if token["odd"]:
                raise UnknownControl(repr(token[0]))
            if token["control"]:
                self._obey(token["argument"], token["control"], token[0])
            elif token["move"]:
                self._move(token["move"])
            else:
                self._put(token["plain"])

    def _put(self, text: str) -> None:
        if self._is_at_start and self.lines[self._row]:
            raise UnknownControl(f"text over {self.lines[self._row]!r}")
        self.lines[self._row] += text
        self._is_at_start = False

    def _move(self, control: str) -> None:
        self._is_at_start = True
        if control == "\n":
            self._row += 1
            if self._row == len(self.lines):
                self.lines.append("")

    def _obey(self, argument: str, control: str, whole: str) -> None:
        if control == "m":
            self._put(whole)
        elif (argument, control) == ("2", "K"):
            self.lines[self._row] = ""
        elif control == "A":
            self._row -= int(argument or 1)
        elif argument + control not in _CURSOR:
            raise UnknownControl(repr(whole))


def screens(recording: Recording) -> Iterator[list[str]]:
    """The lines of the screen after each part, as long as it is: nothing scrolls away."""
    screen = Screen()
    for part in recording.parts:
        screen.write(part.text)
        yield list(screen.lines)
