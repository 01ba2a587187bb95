"""A host that is slow or wrong is named before the first step."""

from pathlib import Path

import pytest

from tests.harness.processes import Run, start

pytestmark = pytest.mark.processes


def _run(folder: Path, fault: str) -> Run:
    return start(
        folder,
        processes=3,
        devices=2,
        config={},
        program=("-m", "tests.multiprocess.checking_hosts"),
        extra={"FAULT": fault, "FAULT_PROCESS": "1"},
    )


def test_good_hosts_exchange_right_numbers(tmp_path: Path) -> None:
    run = _run(tmp_path, "none")
    assert run.wait() == [0, 0, 0], run.explain()
    assert "Pre-flight: 6 devices exchanged right numbers" in run[0].log
    assert "an all-reduce moves" in run[0].log
    assert all(" is slow" not in member.log for member in run.members)


def test_slow_host_is_named(tmp_path: Path) -> None:
    run = _run(tmp_path, "delayed")
    assert run.wait() == [0, 0, 0], run.explain()
    assert "process 1 on host" in run[0].log
    assert " is slow: its devices were ready after " in run[0].log


def test_wrong_host_is_named_by_all_and_ends_the_run(tmp_path: Path) -> None:
    run = _run(tmp_path, "altered")
    assert run.wait() == [1, 1, 1], run.explain()
    for member in run.members:
        assert "an all-reduce over 6 devices has a wrong result: process 1 on host" in member.termination_message
        assert "contributed wrong numbers" in member.termination_message
