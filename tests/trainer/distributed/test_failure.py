"""What each process says about the end of the run."""

import pytest

from tpujob_trainer.distributed import failure
from tpujob_trainer.distributed.failure import Failure, ProgressState


def name(process):
    return f"process {process} on host {'abc'[process]}"


@pytest.mark.parametrize(("first", "own"), [(78, 78), (77, 77), (76, 76), (75, 75), (80, 1), (1, 1), (137, 1)])
def test_code_after_another_process_failed(first, own):
    code, message = failure.after(Failure(process=2, code=first, message="no bucket"), name)
    assert code == own
    assert message == "ended with process 2 on host c, which was first: no bucket"


def test_lost_process_is_named():
    code, message = failure.after(failure.lost([1], name), name)
    assert code == 1
    assert message == (
        "lost process 1 on host b: its connection broke: it was killed or crashed; "
        "the exit code and the log of its pod have the cause"
    )


def test_all_silent_processes_are_named():
    _, message = failure.after(failure.lost([2, 1], name, silent_seconds=30.4), name)
    assert message.startswith("lost process 1 on host b: silent for 30 s (and so process 2 on host c): it hangs, or")


WAITING = ProgressState(phase="training", step=7, progress_count=9, waits=True, where="progress.py:45 in read")
AHEAD = ProgressState(phase="training", step=8, progress_count=10)
IDLE = ProgressState(phase="training", step=7, progress_count=9, where="lane.py:8 in read_unit")


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (
            {0: AHEAD, 1: IDLE},
            "behind the others: process 1 on host b (training, after step 7, at lane.py:8 in",
        ),
        ({0: IDLE, 1: AHEAD, 2: AHEAD}, "behind the others: process 0 on host a (training, after step 7,"),
        # As far as the others, but alone in not waiting for anybody.
        ({0: WAITING, 1: IDLE, 2: WAITING}, "behind the others: process 1 on host b (training,"),
        ({0: WAITING, 1: WAITING}, "no process is behind the others; process 1 on host b: training, after step 7, at"),
        ({0: IDLE, 1: IDLE}, "no process is behind the others; process 1 on host b: training, after step 7, at"),
        # A restored process has gone through other phases than one that was not; steps decide first.
        (
            {0: ProgressState(step=3, progress_count=50), 1: ProgressState(step=4, progress_count=2)},
            "behind the others: process 0 on host a",
        ),
    ],
)
def test_stall_names_who_is_behind(states, words):
    found = failure.stalled(Failure(1, 79, "no progress for 300 s", "stalled"), states, name)
    code, message = failure.after(found, name)
    assert code == 79
    assert message.startswith(f"no progress for 300 s; {words}")


def test_long_message_leaves_room_for_the_host():
    found = Failure.parse({"process": 1, "code": 1, "message": "x" * 10_000})
    assert len(failure.after(found, name)[1]) < 2100


@pytest.mark.parametrize("values", [{}, [], {"process": "1", "code": 1, "message": ""}, {"other": 1}, None])
def test_what_is_no_failure_is_refused(values):
    with pytest.raises(ValueError, match="not a failure"):
        Failure.parse(values)


def test_process_that_has_told_nothing_is_at_the_start():
    assert ProgressState() == ProgressState("starting", 0, 0, 0.0, "", waits=False)
    assert ProgressState().progress == (0, 0)


def test_lost_process_ends_with_1():
    assert failure.lost([1], name).code == 1


def test_place_is_left_out_where_none_is_known():
    assert str(AHEAD) == "training, after step 8"
    assert str(IDLE) == "training, after step 7, at lane.py:8 in read_unit"
