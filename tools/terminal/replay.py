"""The lines on the screen after each part of a recording.

It supports the output of rich: text, line feeds, carriage returns, colours, cursor up, and erasing whole lines.
Anything else raises an error instead of drawing a wrong picture.
"""

import re
from collections.abc import Iterator

from tools.terminal.recording import Recording

_TOKEN = re.compile(
    r"\x1b\[(?P<argument>[0-9;?]*)(?P<control>[A-Za-z])|(?P<plain>[^\x00-\x1f]+)|(?P<move>[\r\n])|(?P<odd>.)", re.S
)
_CURSOR = ("?25l", "?25h")


class UnknownControl(ValueError):  # noqa: N818 - it is what the name says
    """Output that the replay does not support; the message has the sequence or the overwritten text."""


class Screen:
    """Lines with their colours as ANSI sequences, and the cursor position."""

    def __init__(self) -> None:
        """Starts with an empty screen."""
        self.lines = [""]
        self._row = 0
        self._is_at_start = True

    def write(self, text: str) -> None:
        """Applies output to the screen.

        Raises:
            UnknownControl: The text is not plain output of rich.
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
    """All lines of the screen after each part, without a limit of height: nothing scrolls away."""
    screen = Screen()
    for part in recording.parts:
        screen.write(part.text)
        yield list(screen.lines)
