"""Processes end with their parent, and say why they failed."""

import os
import sys
from pathlib import Path

import pytest

from tools.localcluster.processes import Process, ProcessError, free_ports

SLEEPING = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()",
]


def test_failure_shows_the_log_and_its_path(tmp_path: Path) -> None:
    log = tmp_path / "broken.log"
    process = Process("broken", [sys.executable, "-c", "print('port in use'); exit(3)"], log)

    with pytest.raises(ProcessError) as failure:
        process.wait_until_ready("its readiness", lambda: False)

    process.stop()
    ending = "broken exited with code 3 while its readiness was awaited"
    assert str(failure.value) == f"{ending}; the log {log} ends with:\nport in use"


def test_waiting_in_vain_shows_the_log(tmp_path: Path) -> None:
    process = Process("slow", SLEEPING, tmp_path / "slow.log")
    process.wait_until_ready("its first line", lambda: process.log_file.read_text() != "")

    with pytest.raises(
        ProcessError, match=r"slow: timed out after 0.1 s waiting for a wonder: the log .*slow\.log ends with:\nup"
    ):
        process.wait_until_ready("a wonder", lambda: False, timeout_seconds=0.1)

    process.stop()


@pytest.mark.parametrize("command", [SLEEPING, STUBBORN], ids=["obedient", "stubborn"])
def test_stop_leaves_no_process(tmp_path: Path, command: list[str]) -> None:
    process = Process("sleeper", command, tmp_path / "sleeper.log")
    process.wait_until_ready("its first line", lambda: process.log_file.read_text() != "")

    process.stop(grace_seconds=0.2)

    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_free_ports_are_all_different() -> None:
    assert len(set(free_ports(50))) == 50
