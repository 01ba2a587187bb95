"""Processes or devices that are missing end all others, with the exit code and one line that names them."""

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
