"""The process tree, as /proc shows it."""

import os
import shutil
import subprocess

import pytest

from tests.harness.launched import PYTHON
from tools.localcluster.processes import is_alive
from tools.localcluster.waiting import wait_for
from tpujob_launcher.supervise.processes import command_line, descendants, send


def test_descendants_are_found_at_any_depth_and_in_any_session():
    program = "setsid sleep 60 & echo $!; sleep 60 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", program], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        below = {int(shell.stdout.readline()), int(shell.stdout.readline())}
        try:
            assert set(descendants(shell.pid)) == below
            assert {shell.pid, *below} <= set(descendants(os.getpid()))
        finally:
            for pid in (shell.pid, *below):
                send(pid, 9)


def test_ended_process_that_nobody_reaped_is_no_descendant():
    with subprocess.Popen(["true"]) as process:
        wait_for("the process to end", lambda: not is_alive(process.pid))
        assert process.pid not in descendants(os.getpid())
        # It is still there, for nobody has asked how it ended.
        os.kill(process.pid, 0)


def test_name_of_a_process_cannot_deceive(tmp_path):
    sleep = tmp_path / "a) Z 1 (b"
    shutil.copy(shutil.which("sleep") or "", sleep)
    with subprocess.Popen([sleep, "60"]) as process:
        try:
            assert process.pid in descendants(os.getpid())
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [(["a b", "c\nd"], "a b c d"), (["x" * 500], "x" * 200), (["\udcff"], "\ufffd")],
    ids=["one line", "200 characters", "not text"],
)
def test_command_line_is_one_short_line(arguments, line):
    with subprocess.Popen([*PYTHON, "input()", *arguments], stdin=subprocess.PIPE) as process:
        try:
            beginning = " ".join([*PYTHON, "input()"]) + " "
            # Empty for a moment, while the kernel puts the new program in place.
            found = wait_for("a command line", lambda: command_line(process.pid))
            assert found == (beginning + line)[:200]
        finally:
            process.kill()


def test_signal_to_a_process_that_is_gone_is_no_error():
    with subprocess.Popen(["true"]) as process:
        process.wait()
    send(process.pid, 15)
    send(process.pid, 15, group=True)
