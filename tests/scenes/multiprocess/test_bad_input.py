"""What is wrong ends all processes, with its exit code and one line that names the field."""

import re

import pytest

from tests.harness import processes

pytestmark = pytest.mark.processes

MEETING_SECONDS = 40
"""More than one process may need longer than another one until it looks for the others."""


def fail(folder, block, count=2, devices=1, **more):
    """The processes of a run that ends by itself."""
    with processes.start(folder / "logs", processes=count, devices=devices, config=block, **more) as run:
        run.wait()
    return run


def codes(run):
    return [member.poll() for member in run.members]


@pytest.fixture
def block(trainer_block):
    return trainer_block(steps=4, every_steps=2)


def test_unknown_field(tmp_path, block):
    run = fail(tmp_path, {**block, "sequenceLenght": 32}, count=1)
    assert codes(run) == [78]
    assert "spec.trainer.sequenceLenght" in run[0].termination_message
    assert "sequenceLength" in run[0].termination_message


def test_missing_data(tmp_path, block):
    run = fail(tmp_path, {**block, "data": {"path": str(tmp_path / "nowhere" / "*.parquet")}})
    assert codes(run) == [77, 77], run.explain()
    for member in run.members:
        assert "spec.trainer.data.path" in member.termination_message
        assert "nowhere" in member.termination_message


def test_checkpoint_directory_that_is_a_file_is_one_line(tmp_path, block):
    (tmp_path / "file").write_text("")
    run = fail(tmp_path, block, checkpoint_dir=tmp_path / "file")
    assert codes(run) == [78, 78], run.explain()
    for member in run.members:
        assert f"spec.checkpointDir: {tmp_path / 'file'} is not a directory" in member.termination_message
        assert len(member.termination_message.splitlines()) == 1
        said = [line for line in member.log.splitlines() if not line.startswith("tpujob launch: ")]
        assert said[-1].endswith(member.termination_message)


def test_missing_processes(tmp_path, block):
    run = fail(tmp_path, block, count=4, absent=(1, 3), startup_seconds=MEETING_SECONDS)
    assert codes(run) == [80, 80], run.explain()
    for member in run.members:
        assert "process 1 (slice 0, host 1), process 3 (slice 0, host 3)" in member.termination_message


def test_host_with_too_few_devices(tmp_path, block):
    run = fail(tmp_path, block, devices=2, extra_of=lambda index: {"JAX_NUM_CPU_DEVICES": "1"} if index == 1 else {})
    assert codes(run) == [1, 1], run.explain()
    for member in run.members:
        assert "JAX sees 3 devices (cpu) where spec.accelerator asks for 4" in member.termination_message
        assert re.search(r"; process 1 on host \S+ has 1;", member.termination_message)
