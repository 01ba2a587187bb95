"""`tpujob run --restarts`: which failures are tried again, how often and how soon."""

from __future__ import annotations

import pytest

from tpujob.local.outcome import run_with_restarts
from tpujob_contract import ExitCode


def play(endings: list[tuple[int, int | None]], restarts: int) -> tuple[int, list[float], int]:
    """Exit code, pauses and attempts of a run whose attempts end so: exit code, committed step."""
    left, pauses, lines = iter(endings), list[float](), list[str]()
    attempts = 0

    def attempt(number: int) -> tuple[int, dict[str, object]]:
        nonlocal attempts
        assert number == attempts, "the program learns how often it was started"
        attempts += 1
        code, committed = next(left)
        return code, {"committed_step": committed}

    code, _ = run_with_restarts(attempt, restarts, say=lines.append, pause=pauses.append)
    assert len(lines) == len(pauses)
    return code, pauses, attempts


@pytest.mark.parametrize("code", [0, 75, 76, 77, 78])
def test_what_another_try_would_not_change_is_not_tried_again(code: int) -> None:
    assert play([(code, None)], 9) == (code, [], 1)


def test_failures_without_a_newer_checkpoint_are_limited() -> None:
    assert play([(137, 5)] * 9, 3) == (137, [5.0, 10.0, 20.0], 4)
    assert play([(1, None)] * 9, 0) == (1, [], 1)


def test_a_newer_checkpoint_gives_all_restarts_back() -> None:
    endings: list[tuple[int, int | None]] = [(1, 10), (1, 10), (1, 20), (1, 20), (ExitCode.FINISHED, 30)]
    assert play(endings, 2) == (0, [5.0, 10.0, 5.0, 10.0], 5)


def test_pause_grows_to_a_minute() -> None:
    assert max(play([(1, None)] * 9, 8)[1]) == 60.0


def test_ctrl_c_in_the_pause_ends_it() -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    code, _ = run_with_restarts(lambda number: (137, {}), 5, say=lambda line: None, pause=interrupted)
    assert code == 137
