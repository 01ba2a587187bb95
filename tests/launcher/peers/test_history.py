"""What a launcher tells of the attempts that ended in its container."""

import json

import pytest

from tpujob_contract.reports import in_place
from tpujob_launcher.peers.history import WORDS_CHARACTERS, History
from tpujob_launcher.peers.messages import End

KILLED = End(1, 137, 100.25, "frozen")


@pytest.mark.parametrize(
    ("process", "message", "output", "step", "words"),
    [
        (1, "", "last line", None, "last line"),
        (1, "lost a disk", "last line", None, "lost a disk"),
        (0, 'ended with process 1\nreport: {"step": 40}', "last line", 40, None),
        (0, "report: {[}", "", None, None),
        (0, 'report: {"step": "x"}', "", None, None),
        (2, 'report: {"step": 40}', "last line", None, None),
        (1, "", "x" * 9000, None, "x" * WORDS_CHARACTERS),
        (1, "", "", None, None),
    ],
    ids=["its output", "its words", "process 0", "broken", "no step", "another", "long", "silent"],
)
def test_an_end_has_what_this_launcher_alone_knows(
    process: int, message: str, output: str, step: int | None, words: str | None
) -> None:
    history = History(process)
    assert history.line == ""
    history.add(KILLED, message=message, output=output, now=102.5)
    _, told = in_place.split(history.line)
    assert told == json.loads(history.json)
    (end,) = told["ends"]
    assert (end.get("step"), end.get("words")) == (step, words)
    assert (end["process"], end["code"], end["at"], end["again"], end["line"]) == (1, 137, 100.25, 102.5, "frozen")


def test_an_end_that_launcher_0_did_not_name_is_not_told() -> None:
    history = History(0)
    history.add(None, message="", output="", now=1.0)
    assert history.line == ""
