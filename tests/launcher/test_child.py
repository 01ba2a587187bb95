"""Signals, orphans and leftovers, with real processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.harness.launched import JOB, LAUNCHER, LEAVES_A_GRANDCHILD, PYTHON
from tests.launcher.conftest import Launch
from tools.localcluster.processes import is_alive
from tools.localcluster.waiting import wait_for
from tpujob_contract.environment import margin_seconds
from tpujob_launcher.supervise.ending import LEFTOVER_SECONDS

SHORT_GRACE = JOB | {"TPUJOB_GRACE_SECONDS": "1"}

# Not with handlers: one that runs inside `print` must not print.
SAYS_EVERY_SIGNAL = """
import signal
numbers = {getattr(signal, "SIG" + name) for name in ("TERM", "INT", "QUIT", "HUP", "USR1", "USR2")}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", flush=True)
number = None
while number != signal.SIGUSR2:
    number = signal.sigwait(numbers)
    print(signal.Signals(number).name, flush=True)
"""


def test_every_signal_is_forwarded(launch: Launch):
    launched = launch(*PYTHON, SAYS_EVERY_SIGNAL)
    launched.wait_until_said("ready")
    for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR2):
        launched.send(number)
        launched.wait_until_said(number.name)
    assert launched.wait() == 75


def test_ctrl_c_reaches_the_program_once(launch: Launch):
    launched = launch(*PYTHON, SAYS_EVERY_SIGNAL)
    launched.wait_until_said("ready")
    launched.send_to_group(signal.SIGINT)
    launched.wait_until_said("SIGINT")
    launched.send(signal.SIGUSR2)
    assert launched.wait() == 75
    assert launched.stdout == "ready\nSIGINT\nSIGUSR2\n"


def test_usr_signals_are_no_request_to_stop(launch: Launch):
    launched = launch(*PYTHON, SAYS_EVERY_SIGNAL)
    launched.wait_until_said("ready")
    launched.send(signal.SIGUSR2)
    assert launched.wait() == 0


def test_signal_reaches_the_whole_group(launch: Launch):
    # A shell that is waiting for its child passes nothing on by itself.
    launched = launch("sh", "-c", 'trap "" TERM; "$@"; exit 7', "sh", *PYTHON, SAYS_EVERY_SIGNAL)
    launched.wait_until_said("ready")
    launched.send(signal.SIGTERM)
    launched.wait_until_said("SIGTERM")
    launched.send(signal.SIGUSR1)
    launched.wait_until_said("SIGUSR1")


def test_zero_after_a_stop_becomes_75(launch: Launch):
    launched = launch(
        *PYTHON,
        "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); print('ready', flush=True); signal.pause()",
    )
    launched.wait_until_said("ready")
    launched.send(signal.SIGTERM)
    assert launched.wait() == 75
    assert launched.message[:2] == [
        "exit code 75, asked to stop; state saved",
        "told to stop by SIGTERM, the program returned 0",
    ]
    assert launched.message[3:] == ["ready"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_death_by_the_stop_signal_stays_visible(launch: Launch, number, code):
    launched = launch("sh", "-c", "echo ready; exec sleep 60")
    launched.wait_until_said("ready")
    launched.send(number)
    assert launched.wait() == code
    assert launched.message[:2] == [f"exit code {code}, killed by {number.name}", f"told to stop by {number.name}"]


def test_program_deaf_to_sigterm_is_killed_within_the_grace_period(launch: Launch):
    launched = launch("sh", "-c", 'trap "" TERM; echo ready; while :; do sleep 60; done', environ=SHORT_GRACE)
    launched.wait_until_said("ready")
    start = time.monotonic()
    launched.send(signal.SIGTERM)
    assert launched.wait() == 137
    assert time.monotonic() - start < LEFTOVER_SECONDS
    assert launched.message[:2] == ["exit code 137, killed by SIGKILL", "still running 1 s after SIGTERM: killed"]


@pytest.mark.parametrize("how", ["same-group", "setsid", "setsid,orphan", "deaf", "setsid,orphan,deaf"])
@pytest.mark.parametrize("then", ["end", "wait"])
def test_no_grandchild_survives(launch: Launch, how, then):
    # Who is deaf uses up the grace period; the others need none of it, however busy the machine is.
    environ = JOB | {"TPUJOB_GRACE_SECONDS": "2"} if "deaf" in how else JOB
    launched = launch(*PYTHON, LEAVES_A_GRANDCHILD, how, then, environ=environ)
    if then == "wait":
        launched.wait_until_said("ready")
        launched.send(signal.SIGTERM)
    else:
        launched.wait_until_said("grandchild")
    start = time.monotonic()
    assert launched.wait() == (75 if then == "wait" else 0)
    # The grace period is the limit here, not what a leftover may have elsewhere; a busy machine adds to it.
    assert time.monotonic() - start < LEFTOVER_SECONDS
    assert not is_alive(launched.grandchild)
    named = any("left behind and killed" in line for line in launched.message)
    assert named == ("deaf" in how)


def test_orphans_are_adopted_and_reaped(launch: Launch):
    program = """
import os, signal, time
if os.fork() == 0:
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            time.sleep(0.01)
        print("orphan", os.getpid(), "of", os.getppid(), flush=True)
    os._exit(0)
os.wait()
signal.pause()
"""
    launched = launch(*PYTHON, program)
    launched.wait_until_said(" of ")
    launched.wait_until_said(f"of {launched.pid}\n")
    orphan = int(launched.stdout.split()[1])
    wait_for("the orphan to be reaped", lambda: not _exists(orphan))
    launched.send(signal.SIGTERM)
    assert launched.wait() == 143


@pytest.fixture(scope="module")
def as_process_1() -> tuple[str, ...]:
    """The launcher in a PID namespace of its own, as in a container."""
    namespace = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
    try:
        refused = subprocess.run([*namespace, "true"], capture_output=True, text=True).stderr
    except FileNotFoundError as error:
        refused = str(error)
    if refused:
        pytest.skip(f"no PID namespace can be made here: {refused}")
    return (*namespace, *LAUNCHER)


def test_process_1_leaves_nothing_behind(launch: Launch, as_process_1):
    program = LEAVES_A_GRANDCHILD + "print('child of', os.getppid())"
    launched = launch(*PYTHON, program, "setsid,orphan,deaf", "end", environ=SHORT_GRACE, launcher=as_process_1)
    assert launched.wait() == 0
    assert launched.stdout.endswith("child of 1\n")
    assert launched.message[1].startswith(f"left behind and killed: process {launched.grandchild} (")


def test_process_1_receives_signals(launch: Launch, as_process_1):
    """The kernel drops a signal to process 1 for which it has no handler."""
    program = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
os.kill(1, signal.SIGTERM)
signal.pause()
"""
    assert launch(*PYTHON, program, launcher=as_process_1).wait() == 75


def test_killed_launcher_takes_its_program_along(launch: Launch):
    launched = launch(*PYTHON, "import os, signal; print(os.getpid(), 'ready', flush=True); signal.pause()")
    launched.wait_until_said("ready")
    child = int(launched.stdout.split()[0])
    assert is_alive(child)
    launched.send(signal.SIGKILL)
    assert launched.wait() == 128 + signal.SIGKILL
    wait_for("the program to be killed", lambda: not is_alive(child))


@pytest.mark.parametrize(("grace", "margin"), [(1, 0.2), (5, 1), (10, 2), (30, 2), (3600, 2)])
def test_margin_is_a_small_part_of_the_grace_period(grace, margin):
    assert margin_seconds(grace) == pytest.approx(margin)


def _exists(pid: int) -> bool:
    """Unlike is_alive, true for a process that nobody reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_second_stop_does_not_extend_the_grace_period(launch: Launch):
    launched = launch(*PYTHON, SAYS_EVERY_SIGNAL, environ=JOB | {"TPUJOB_GRACE_SECONDS": "10"})
    launched.wait_until_said("ready")
    started = time.monotonic()
    launched.send(signal.SIGTERM)
    # Of two signals that wait to be delivered, the kernel takes the one of the lower number first.
    launched.wait_until_said("SIGTERM")

    def has_asked_for_long() -> bool:
        launched.send(signal.SIGINT)
        return time.monotonic() - started > 7

    wait_for("most of the grace period to pass", has_asked_for_long)
    last = time.monotonic()
    assert launched.wait() == 137
    # Eight seconds from the first one, which is soon after the last: only one of those would have moved it this far.
    assert time.monotonic() - last < 8
    assert launched.message[1].startswith("still running 8 s after SIGTERM: killed")


def test_deaf_leftovers_end_within_the_grace_period(launch: Launch):
    program = [*PYTHON, LEAVES_A_GRANDCHILD, "setsid-deaf", "wait"]
    launched = launch(*program, environ=JOB | {"TPUJOB_GRACE_SECONDS": "10"})
    launched.wait_until_said("ready")
    started = time.monotonic()
    launched.send(signal.SIGTERM)
    assert launched.wait() == 75
    assert time.monotonic() - started < 10
    assert not is_alive(launched.grandchild)


ASKED_TOO_LATE = """
import os, signal, sys
from tpujob_launcher.main import main
code = main()
os.kill(os.getpid(), signal.SIGTERM)
sys.exit(code)
"""


def test_stop_after_the_end_does_not_change_the_exit_code(launch: Launch):
    """As of a peer that failed at the same moment: its end has others asked to stop, who have failed already."""
    launched = launch(*PYTHON, "raise SystemExit(3)", launcher=(sys.executable, "-c", ASKED_TOO_LATE))
    assert launched.wait() == 3
