"""Start, restore and endings of several processes, with a run that counts in place of a model."""

import signal

import pytest

from tests.harness import processes
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.processes

COUNTING = ("-m", "tests.multiprocess.counting_run")


@pytest.fixture
def start(tmp_path):
    """A function that starts counting runs, one after the other, in one checkpoint directory."""
    number = iter(range(100))

    def start(count, devices, steps=4, *, more=None, **arguments):
        return processes.start(
            tmp_path / f"run-{next(number)}",
            processes=count,
            devices=devices,
            config={"steps": steps, "save_every": 2, **(more or {})},
            program=COUNTING,
            **arguments,
        )

    return start


def finish(run):
    with run:
        return run.wait()


def damage(checkpoints, step):
    for file in (checkpoints / "steps" / str(step) / "state" / "d").iterdir():
        file.write_bytes(b"")


def test_any_number_of_processes_restores_any_other(start, tmp_path):
    for count, devices, steps in ((2, 2, 4), (4, 1, 6), (1, 4, 8)):
        run = start(count, devices, steps)
        assert finish(run) == [0] * count, run.explain()
        parts = (tmp_path / "checkpoints" / "steps" / str(steps) / "state").glob("ocdbt.process_*")
        assert {path.name for path in parts} == {f"ocdbt.process_{index}" for index in range(count)}
        if steps > 4:
            assert all(f"restored={steps - 2} value={steps - 2}.0" in member.log for member in run.members)


def test_damaged_checkpoint_is_left_by_all_together(start, tmp_path):
    assert finish(start(2, 1)) == [0, 0]
    damage(tmp_path / "checkpoints", 4)
    run = start(2, 1, 6)
    assert finish(run) == [0, 0], run.explain()
    for member in run.members:
        assert "The checkpoint of step 4 cannot be used: process 0: " in member.log
        assert "restored=2 value=2.0" in member.log


def test_failure_of_one_is_sent_to_the_others(start):
    run = start(3, 1, more={"raise_in": 1, "width": 12})
    assert finish(run) == [1, 1, 1], run.explain()
    assert run[1].termination_message.endswith("process 1 of 3: ValueError: raised on purpose")
    for index in (0, 2):
        assert "which was first: ValueError: raised on purpose" in run[index].termination_message
        assert "ended with process 1 on host" in run[index].termination_message


def test_killed_coordinator_is_named_by_the_others(start):
    with start(3, 1, 1_000_000, more={"save_every": 1_000, "width": 12}) as run:
        wait_for(
            "all to count",
            lambda: all("counting" in member.log for member in run.members),
            timeout_seconds=processes.PATIENCE_SECONDS,
            explain=run.explain,
        )
        processes.kill(run[0])
        codes = run.wait()
    assert sorted(codes) == [1, 1, 137], run.explain()
    assert all("lost process 0 on host" in member.termination_message for member in run.members[1:])


def test_request_to_stop_is_handled_while_waiting_for_others(start):
    with start(2, 1, absent=(1,)) as run:
        wait_for(
            "the meeting",
            lambda: "Waiting for processes" in run[0].log,
            timeout_seconds=processes.PATIENCE_SECONDS,
            explain=run.explain,
        )
        processes.kill(run[0], signal.SIGTERM)
        assert run.wait() == [75]
    assert "SIGTERM outside the training loop" in run[0].termination_message


def test_directory_of_another_job_is_refused_to_all(start):
    assert finish(start(1, 1)) == [0]
    run = start(2, 1, name="other")
    assert finish(run) == [78, 78], run.explain()
    assert all("belongs to test/job, and this job is test/other" in m.termination_message for m in run.members)
    run = start(2, 1, 6, name="other", more={"adopt": "test/job"})
    assert finish(run) == [0, 0], run.explain()
