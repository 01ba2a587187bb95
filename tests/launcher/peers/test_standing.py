"""What a launcher makes of the messages of launcher 0."""

import pytest

from tpujob_launcher.peers.messages import ASKED, END, GO, RESTART, WELCOME, Message
from tpujob_launcher.peers.standing import Standing

WELCOMED: Message = (WELCOME, {"attempt": 1, "running": True})
WENT: Message = (GO, {"attempt": 1, "cause": "a bug"})


def ended(attempt: int) -> Message:
    return END, {"attempt": attempt, "host": "b", "end": {"process": 1, "code": 3, "at": 1.0, "line": "a bug"}}


@pytest.mark.parametrize("first", [WENT, WELCOMED])
def test_an_end_that_is_told_together_with_the_start_is_heard(first: Message) -> None:
    standing = Standing()
    standing.take(ended(0))
    standing.take(first)
    assert standing.first is None, "it was of the attempt before"
    standing.take(ended(1))
    standing.begin(1)
    assert standing.has_to_end
    assert standing.following == (1, "ended with process 1 on host b, which was first: a bug")
    standing.begin(2)
    assert not standing.has_to_end


def test_a_program_that_ends_since_one_was_asked_to_stop_has_stopped() -> None:
    standing = Standing()
    standing.take((RESTART, {"attempt": 1}))
    assert (standing.has_to_end, standing.following) == (True, None)
    standing.take((ASKED, {"attempt": 0, "who": "SIGTERM at process 2"}))
    assert standing.following == (75, "asked to stop (SIGTERM at process 2)")
