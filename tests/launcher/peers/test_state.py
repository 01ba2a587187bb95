"""What a launcher concludes from the state that launcher 0 sends."""

from typing import Any

import pytest

from tpujob_launcher.peers.state import State

FIRST = {"process": 1, "code": 3, "at": 1.0, "line": "a bug", "host": "b"}
NEXT = {"attempt": 1, "running": True, "end": FIRST}


@pytest.mark.parametrize("account", [{}, {"account": {"counts": {"crash": 1}, "ends": []}}], ids=["restart", "welcome"])
def test_an_end_that_comes_together_with_the_start_is_known(account: dict[str, Any]) -> None:
    state = State()
    state.update({"attempt": 0, "running": True, "first": FIRST})
    state.update({**NEXT, **account})
    assert (state.first, state.end is None) == (None, bool(account)), "the account has the end"
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
