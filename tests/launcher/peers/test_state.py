"""What a launcher concludes from the state that launcher 0 sends."""

from typing import Any

import pytest

from tpujob_contract.reports import in_place
from tpujob_launcher.peers.state import WORDS_CHARACTERS, State

FIRST = {"process": 1, "code": 3, "at": 1.0, "line": "a bug", "host": "b"}
ACCOUNT: Any = {"counts": {"crash": 1}, "last": {**FIRST, "cause": "crash"}}
NEXT = {"attempt": 1, "running": True, "account": ACCOUNT}


def test_an_end_that_comes_together_with_the_start_is_known() -> None:
    state = State()
    state.update({"attempt": 0, "running": True, "first": FIRST})
    state.update(NEXT)
    assert (state.first, state.cause) == (None, "process 1 ended with exit code 3: a bug")
    state.update({**NEXT, "first": FIRST})
    state.begin(1)
    assert state.has_to_end
    assert state.following == (1, "ended with process 1 on host b, which was first: a bug")
    state.begin(2)
    assert not state.has_to_end


def test_a_program_that_ends_since_one_was_asked_to_stop_has_stopped() -> None:
    state = State()
    state.update({"attempt": 1, "running": False})
    assert (state.has_to_end, state.following) == (True, None)
    state.update({"attempt": 1, "running": False, "asked": "SIGTERM at process 2"})
    assert state.following == (75, "asked to stop (SIGTERM at process 2)")


def test_a_replaced_pod_joins_no_attempt_that_ends() -> None:
    state = State(is_replacement=True)
    state.update({"attempt": 1, "running": False, "first": FIRST})
    assert (state.announced, state.allowed, state.first) == (1, -1, None)


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
def test_the_last_end_has_what_this_launcher_alone_knows(
    process: int, message: str, output: str, step: int | None, words: str | None
) -> None:
    state = State(process)
    state.update(NEXT)
    state.add_details(message, output)
    _, told = in_place.split(in_place.line(state.account))
    assert (told["last"].get("step"), told["last"].get("words")) == (step, words)
    state.update({**NEXT, "account": {"counts": {"crash": 0}}})
    state.update(NEXT)
    assert state.account == told, "the same account adds nothing, and a smaller one takes nothing away"


def test_before_the_first_restart_there_is_no_account() -> None:
    state = State(0)
    state.add_details("lost a disk", "")
    assert in_place.line(state.account) == ""
