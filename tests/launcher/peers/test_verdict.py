"""What each process says about the end of the run."""

import pytest

from tpujob_contract.reports.progress_state import ProgressState
from tpujob_launcher.peers import verdict
from tpujob_launcher.peers.messages import END_CHARACTERS, LOST, STALLED, End


def name(process: int) -> str:
    return f"process {process} on host {'abc'[process]}"


@pytest.mark.parametrize(
    ("end", "asked", "code", "message"),
    [
        *(
            (End(2, first, 0.0, "no bucket"), "", own, "ended with process 2 on host c, which was first: no bucket")
            for first, own in ((78, 78), (77, 77), (76, 76), (75, 75), (80, 1), (1, 1), (137, 1))
        ),
        (End(2, 3, 0.0, ""), "", 1, "ended with process 2 on host c, which was first: exit code 3, crashed"),
        (End(2, 1, 0.0, "silent for 30 s", LOST), "", 1, "lost process 2 on host c: silent for 30 s"),
        (
            End(2, 1, 0.0, "silent for 30 s", LOST),
            "SIGTERM at process 2",
            75,
            "asked to stop (SIGTERM at process 2), and lost process 2 on host c: silent for 30 s",
        ),
        (End(2, 1, 0.0, "no progress", STALLED), "SIGTERM at process 2", 79, "no progress"),
    ],
)  # fmt: skip
def test_code_and_words_after_another_process(end: End, asked: str, code: int, message: str) -> None:
    assert verdict.after(end, "c", asked) == (code, message)


WAITING = ProgressState(phase="training", step=7, progress_count=9, waits=True, where="progress.py:45 in read")
AHEAD = ProgressState(phase="training", step=8, progress_count=10)
IDLE = ProgressState(phase="training", step=7, progress_count=9, where="lane.py:8 in read_unit")


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({0: AHEAD, 1: IDLE}, "behind the others: process 1 on host b (training, after step 7, at lane.py:8 in"),
        ({0: IDLE, 1: AHEAD, 2: AHEAD}, "behind the others: process 0 on host a (training, after step 7,"),
        # As far as the others, but alone in not waiting for anybody.
        ({0: WAITING, 1: IDLE, 2: WAITING}, "behind the others: process 1 on host b (training,"),
        ({0: WAITING, 1: WAITING}, "no process is behind the others; process 1 on host b: training, after step 7, at"),
        ({0: IDLE, 1: IDLE}, "no process is behind the others; process 1 on host b: training, after step 7, at"),
        ({}, "no process is behind the others"),
        # A restored process has gone through other phases than one that was not; steps decide first.
        (
            {0: ProgressState(step=3, progress_count=50), 1: ProgressState(step=4, progress_count=2)},
            "behind the others: process 0 on host a",
        ),
    ],
)
def test_stall_names_who_is_behind(states: dict[int, ProgressState], words: str) -> None:
    found = verdict.stalled(End(1, 79, 0.0, "no progress for 300 s", STALLED), states, name)
    assert found.line.startswith(f"no progress for 300 s; {words}")


def test_message_about_thousands_names_twenty() -> None:
    message = verdict.lost(range(1, 10_000), "process {}".format, 0.0, silent_seconds=30).line
    assert "process 21 and 9978 more" in message
    states = {i: ProgressState(step=5 + (i == 0)) for i in range(10_000)}
    assert verdict.stragglers(states, "process {}".format).endswith(
        "process 20 (starting, after step 5); and 9979 more"
    )
    end = verdict.stalled(End(1, 79, 0.0, "no progress", STALLED), states, ("x" * 200 + "{}").format)
    assert len(end.line) == END_CHARACTERS
