"""How often a server that does not answer is asked again."""

from collections.abc import Callable

import pytest

from tpujob_launcher.code.patience import LONGEST_PAUSE_SECONDS, TIMES, TIMES_OF_A_RESTART, Unanswered, asked, times_of


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


def _away(times: int) -> Callable[[], str]:
    left = iter(range(times))

    def ask() -> str:
        if next(left, None) is not None:
            raise Unanswered("https://host/project: 503")
        return "answer"

    return ask


@pytest.mark.parametrize(
    ("environ", "times"),
    [
        ({}, TIMES),
        ({"TPUJOB_ATTEMPT": "0"}, TIMES),
        ({"TPUJOB_ATTEMPT": "1"}, TIMES_OF_A_RESTART),
        ({"TPUJOB_ATTEMPT": "12"}, TIMES_OF_A_RESTART),
        ({"TPUJOB_ATTEMPT": "second"}, TIMES),
    ],
)
def test_restart_asks_longer(environ: dict[str, str], times: int) -> None:
    assert times_of(environ) == times


def test_first_start_fails_within_seconds(paused: list[float]) -> None:
    with pytest.raises(OSError, match=r"^https://host/project: 503; asked 5 times$"):
        asked(_away(TIMES), TIMES)
    assert sum(paused) == 15


def test_restart_waits_for_ten_minutes_and_says_so(paused: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(_away(TIMES_OF_A_RESTART - 1), TIMES_OF_A_RESTART) == "answer"
    assert max(paused) == LONGEST_PAUSE_SECONDS
    assert 540 < sum(paused) < 600, "peers that have their code wait for spec.startupSeconds, 600 s by default"
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "tpujob code: https://host/project: 503; asked 1 of 23 times, again in 1 s"
    assert last == "tpujob code: https://host/project: 503; asked 22 of 23 times, again in 30 s"


def test_refusal_is_not_asked_again(paused: list[float]) -> None:
    def refuse() -> str:
        raise PermissionError("private")

    with pytest.raises(PermissionError):
        asked(refuse, TIMES)
    assert not paused
