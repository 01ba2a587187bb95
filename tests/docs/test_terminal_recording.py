"""The moving picture of the demo is drawn of a real recording, and is safe to show anywhere."""

import re
import sys
from pathlib import Path

import pytest

from tools.terminal.__main__ import COMMAND, PICTURE, RECORDING, ROOT
from tools.terminal.picture import END_SECONDS, PLAY_SECONDS, picture, timed
from tools.terminal.recording import CommandFailed, Part, Recording, joined, record
from tools.terminal.replay import Screen, UnknownControl, screens

LIVE = "\r\x1b[2Kstep 1\r\x1b[2Kstep 2\r\n\x1b[?25h\r\x1b[1A\x1b[2K\r\ndone\r\n"
"""What rich's live line writes: twice the same line, then its end, then what stays."""


def test_picture_is_that_of_the_recording() -> None:
    assert PICTURE.read_text() == picture(Recording.read(RECORDING)), "run `python -m tools.terminal --draw`"


def test_recorded_command_is_the_demos() -> None:
    assert f"$(BIN)/{' '.join(COMMAND)}\n" in (ROOT / "Makefile").read_text()
    assert Recording.read(RECORDING).command == " ".join(COMMAND)


def test_recorded_demo_finished() -> None:
    *_, last = screens(Recording.read(RECORDING))
    assert any(line.startswith("finished at step 200") for line in last)


def test_picture_names_no_address_and_no_script() -> None:
    drawn = PICTURE.read_text()
    assert {name[0] for name in re.findall(r'(?:href|src)="([^"]*)"', drawn)} == {"#"}
    assert "<script" not in drawn
    assert "url(" not in drawn


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("a\r\nb", ["a", "b"], id="lines"),
        pytest.param("a\r\x1b[2Kb", ["b"], id="an erased line"),
        pytest.param("\x1b[1ma\x1b[0m", ["\x1b[1ma\x1b[0m"], id="colours stay"),
        pytest.param(LIVE, ["", "done", ""], id="the end of a live line"),
    ],
)
def test_screen_shows_what_a_terminal_does(text: str, lines: list[str]) -> None:
    screen = Screen()
    screen.write(text)
    assert screen.lines == lines


@pytest.mark.parametrize("text", ["\x1b[3;4H", "\x07", "a\rb"], ids=["a place", "a bell", "text over text"])
def test_what_the_screen_does_not_know_is_an_error(text: str) -> None:
    with pytest.raises(UnknownControl):
        Screen().write(text)


def test_parts_are_joined_without_what_is_overwritten() -> None:
    printed = iter([(0.0, "a\r\x1b[2K"), (0.4, "b\r\x1b[2Kc"), (2.0, "\r\nd")])
    assert list(joined(printed)) == [Part(1.0, "\r\x1b[2Kc"), Part(3.0, "\r\nd")]


def test_screen_stays_until_the_next_differs() -> None:
    parts = (Part(1.0, "a"), Part(2.0, ""), Part(6.0, "b"))
    assert list(timed(Recording("c", parts))) == [(PLAY_SECONDS, ["a"]), (END_SECONDS, ["ab"])]


def test_command_is_recorded_on_a_terminal(tmp_path: Path) -> None:
    program = "import os, sys; print(os.isatty(1), os.get_terminal_size().columns, 'ü')"
    recording = record([sys.executable, "-c", program], tmp_path, {})
    assert "".join(part.text for part in recording.parts) == "True 96 ü\r\n"
    recording.write(tmp_path / "file")
    assert [part.text for part in Recording.read(tmp_path / "file").parts] == [part.text for part in recording.parts]


def test_failed_command_is_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="why"):
        record([sys.executable, "-c", "raise SystemExit('why')"], tmp_path, {})
