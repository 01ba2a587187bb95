"""Processes end with their parent, and say why they failed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.localcluster.processes import Process, ProcessError, free_ports
from tools.localcluster.waiting import wait_for

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


def test_killed_process_starts_again_in_its_log(tmp_path: Path) -> None:
    process = Process("sleeper", SLEEPING, tmp_path / "sleeper.log")
    process.wait_until_ready("its first line", lambda: process.log_file.read_text() == "up\n")
    killed = process.pid
    os.kill(killed, signal.SIGKILL)
    wait_for("its end", lambda: process.has_ended)

    process.start_again()

    process.wait_until_ready("its second line", lambda: process.log_file.read_text() == "up\nup\n")
    assert (process.pid != killed, process.has_ended) == (True, False)
    process.stop()


def test_free_ports_are_all_different() -> None:
    assert len(set(free_ports(50))) == 50


def test_port_is_not_chosen_again_before_it_may_be_bound() -> None:
    chosen = [port for _ in range(300) for port in free_ports(3)]
    assert len(set(chosen)) == len(chosen)


def test_parts_of_the_range_have_no_port_in_common() -> None:
    program = "from tools.localcluster import processes as p; p.choose_ports_of_part({}, 2); print(p.free_ports(500))"
    first, second = (
        json.loads(subprocess.check_output([sys.executable, "-c", program.format(part)])) for part in (0, 1)
    )
    assert set(first).isdisjoint(second)
