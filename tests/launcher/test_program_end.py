"""A Python program that fails and cannot end, as JAX's exit handler keeps it: named, ended, with its own exit code."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.harness.launched import JOB
from tests.launcher.conftest import Launch
from tests.launcher.test_carrier import find_python
from tpujob_contract import environment
from tpujob_contract.environment import read_environment
from tpujob_contract.reports.termination_message import failed_at, failure_line, stopped_at
from tpujob_launcher.code.carrier import write_launcher
from tpujob_launcher.supervise import start_hook
from tpujob_launcher.supervise.attempts import FAILED_EXIT_SECONDS, has_peers
from tpujob_launcher.supervise.program_end import ProgramEnds

SHARED_BARRIER = "import atexit, sys, threading\natexit.register(threading.Event().wait, 300)\nprint('buffered')\n"
"""An exit handler that waits for peers, registered by the program, and so run before any of ours."""
ALONE = JOB | {"TPUJOB_SLICE": "0", "TPUJOB_HOST": "0", "TPUJOB_SLICES": "1", "TPUJOB_HOSTS_PER_SLICE": "1"}
LIMIT_SECONDS = FAILED_EXIT_SECONDS + 5
"""Within which a failed process has to be named."""


@pytest.fixture(params=[None, "3.9", "3.11"])
def python(request) -> str:
    """Interpreters with and without `sys.monitoring`."""
    found = sys.executable if request.param is None else find_python(request.param)
    if found is None:
        pytest.skip(f"no Python {request.param} on this machine")
    return found


@pytest.mark.parametrize(
    ("ending", "code", "named"),
    [
        pytest.param("raise RuntimeError('on purpose')", 1, "RuntimeError: on purpose", id="exception"),
        pytest.param("sys.exit(3)", 3, "SystemExit: 3", id="sys.exit"),
        pytest.param("sys.exit('no data')", 1, "SystemExit: no data", id="sys.exit with words"),
    ],
)
def test_a_failed_program_is_ended_with_its_own_code(launch: Launch, python, tmp_path, ending, code, named):
    script = tmp_path / "train.py"
    script.write_text(f"{SHARED_BARRIER}def main():\n    {ending}\nmain()\n")
    before = time.time()
    launched = launch(python, str(script), environ=JOB)
    assert launched.wait() == code
    assert time.time() - before < LIMIT_SECONDS
    assert launched.stdout == "buffered\n", "what the program had printed is not lost with it"
    assert f"the program failed, and is in its exit handlers: {named}" in launched.stderr
    assert launched.message[0] == f"exit code {code}, crashed"
    assert launched.message[1].endswith(f"Z: {named}")
    assert launched.message[2] == "still running 5 s after it failed: killed"
    moment = failed_at("\n".join(launched.message))
    assert moment is not None
    assert before < moment < time.time()
    if "exit" not in ending:
        assert f'  File "{script}", line 6, in <module>' in launched.message
        assert launched.message[-1] == named


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("raise SystemExit(3)", id="raised, not called"),
        pytest.param("sys.excepthook = lambda *_: None; raise SystemExit(3)", id="hook replaced"),
    ],
)
def test_system_exit_is_seen_however_it_is_raised(launch: Launch, ending):
    launched = launch(sys.executable, "-c", SHARED_BARRIER + ending, environ=JOB)
    assert launched.wait() == 3
    assert launched.message[2] == "still running 5 s after it failed: killed"


def test_an_exception_is_seen_whoever_has_replaced_the_hook(launch: Launch):
    ending = "sys.excepthook = lambda *_: None\nraise RuntimeError('hidden')"
    launched = launch(sys.executable, "-c", SHARED_BARRIER + ending, environ=JOB)
    assert launched.wait() == 1
    assert launched.message[-1] == "RuntimeError: hidden"


def test_a_module_is_watched_as_a_script_is(launch: Launch, tmp_path):
    (tmp_path / "trains.py").write_text(SHARED_BARRIER + "raise SystemExit(4)")
    launched = launch(sys.executable, "-m", "trains", environ=JOB | {"PYTHONPATH": str(tmp_path)})
    assert launched.wait() == 4


def test_the_traceback_is_quoted_and_not_the_frames_that_follow_it(launch: Launch):
    program = (
        "import atexit, os, sys\n"
        "atexit.register(os.abort)\n"
        "atexit.register(lambda: print('*** Check failure stack trace: ***', file=sys.stderr))\n"
        "raise RuntimeError('on purpose')"
    )
    launched = launch(sys.executable, "-c", program, environ=JOB)
    assert launched.wait() == 1, "not 134: its exit handlers aborted, after it had failed"
    assert launched.message[-1] == "RuntimeError: on purpose"
    assert "Traceback (most recent call last):" in launched.message
    assert "Check failure" not in "\n".join(launched.message)


@pytest.mark.parametrize("ending", ["sys.exit(78)", "raise SystemExit(78)", "os._exit(78)"])
def test_what_a_program_prints_before_it_exits_is_its_last_words(launch: Launch, python, ending):
    words = "--depth: -3 is not allowed; give 1 to 128"
    launched = launch(python, "-c", f"import os, sys\nprint({words!r}, flush=True)\n{ending}", environ=JOB)
    assert launched.wait() == 78
    assert launched.message[-1] == words
    assert "Traceback" not in "\n".join(launched.message)


QUIET = {
    "ended by itself": "print('done')",
    "exit with 0": "import sys; sys.exit(0)",
    "caught": "import sys\ntry:\n    sys.exit(2)\nexcept SystemExit:\n    print('done')",
    "a thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()",
    "sys.exit in a thread": (
        "import sys, threading\nt = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()"
    ),
    "a fork": "import os, sys\npid = os.fork()\nif pid == 0:\n    sys.exit(3)\nos.waitpid(pid, 0)",
    "a fork that leaves at once": "import os\npid = os.fork()\nif pid == 0:\n    os._exit(3)\nos.waitpid(pid, 0)",
    "a subprocess": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'raise SystemExit(3)'])",
    "a worker of multiprocessing": (
        "import multiprocessing, sys\n"
        "w = multiprocessing.get_context('fork').Process(target=sys.exit, args=(3,))\nw.start(); w.join()"
    ),
}


@pytest.mark.parametrize("program", QUIET.values(), ids=QUIET)
def test_what_is_no_failure_of_the_program_is_not_reported(python, tmp_path, program):
    with ProgramEnds(tmp_path) as ends:
        environ = {"PATH": os.environ["PATH"]}
        done = subprocess.run([python, "-c", program], env=environ | ends.variables(environ), capture_output=True)
        assert done.returncode == 0, done.stderr
        assert [(end.code, end.error) for end in ends.receive()] == [(0, "")]


def test_an_exit_without_handlers_is_reported_with_its_place(launch: Launch, python, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import os\ndef main():\n    os._exit(3)\nmain()\n")
    launched = launch(python, str(script), environ=JOB)
    assert launched.wait() == 3
    assert launched.message[1].endswith(f"Z: os._exit(3) at {script}:3 in main")


def test_the_carried_launcher_brings_the_hook(launch: Launch, python, tmp_path):
    write_launcher(tmp_path / "launch.pyz")
    launched = launch(
        python, "-c", "raise RuntimeError('on purpose')", environ=JOB, launcher=(python, str(tmp_path / "launch.pyz"))
    )
    assert launched.wait() == 1
    assert launched.message[1].endswith("Z: RuntimeError: on purpose")


def test_a_failed_command_of_a_shell_script_is_ended_alone(launch: Launch, tmp_path):
    (tmp_path / "train.py").write_text(SHARED_BARRIER + "raise RuntimeError('on purpose')")
    script = f"{sys.executable} {tmp_path}/train.py; echo after $?; exit 7"
    launched = launch("sh", "-c", script, environ=JOB)
    assert launched.wait() == 7
    assert launched.stdout.endswith("after 137\n")
    launched = launch("sh", "-ec", f"{sys.executable} {tmp_path}/train.py; true", environ=JOB)
    assert launched.wait() == 1, "the code of the program, where the shell passes on that it was killed"
    assert launched.message[-1] == "RuntimeError: on purpose"


@pytest.mark.parametrize(("environ", "is_one_of_several"), [(JOB, True), (ALONE, False)], ids=["one of two", "alone"])
def test_others_wait_for_a_program_that_has_peers(environ, is_one_of_several):
    assert has_peers(read_environment(environ)) == is_one_of_several


def test_who_is_asked_to_stop_and_then_fails_waits_no_longer_and_is_no_culprit(launch: Launch):
    program = (
        SHARED_BARRIER + "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [15])\nprint('ready', flush=True)\n"
        "signal.sigwait([15])\nraise RuntimeError('the others are gone')"
    )
    launched = launch(sys.executable, "-c", program, environ=JOB)
    launched.wait_until_said("ready")
    asked = time.monotonic()
    launched.send(signal.SIGTERM)
    assert launched.wait() == 137
    assert time.monotonic() - asked < LIMIT_SECONDS, "the grace period is 30 s"
    assert launched.message[1:3] == ["still running 5 s after SIGTERM: killed", "told to stop by SIGTERM"]
    assert failed_at("\n".join(launched.message)) is None


def test_who_ends_with_0_when_asked_to_stop_has_stopped_though_its_exit_handlers_wait(launch: Launch):
    program = (
        SHARED_BARRIER + "import signal, sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, [15])\n"
        "print('ready', flush=True)\nsignal.sigwait([15])\nsys.exit(0)"
    )
    launched = launch(sys.executable, "-c", program, environ=JOB | {"TPUJOB_GRACE_SECONDS": "2"})
    launched.wait_until_said("ready")
    launched.send(signal.SIGTERM)
    assert launched.wait() == 75
    assert launched.message[2] == "told to stop by SIGTERM, the program returned 0"
    assert stopped_at("\n".join(launched.message)) is not None


def test_saved_and_start_me_again_is_no_failure(launch: Launch):
    launched = launch(sys.executable, "-c", "import sys\nsys.exit(75)", environ=JOB)
    begun = time.time()
    assert launched.wait() == 75
    message = "\n".join(launched.message)
    assert failed_at(message) is None
    assert begun <= (stopped_at(message) or 0) <= time.time()


def test_the_users_own_sitecustomize_runs(launch: Launch, python, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.MINE = __name__")
    program = "import sitecustomize, sys; print(MINE, sitecustomize.__file__, *sys.path[:2])"
    launched = launch(python, "-c", program, environ=JOB | {"PYTHONPATH": str(tmp_path)})
    assert launched.wait() == 0, launched.stderr
    assert launched.stdout == f"sitecustomize {tmp_path}/sitecustomize.py  {tmp_path}\n"


def test_a_broken_sitecustomize_is_the_users_own_error(launch: Launch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import not_there")
    launched = launch(sys.executable, "-c", "print('runs')", environ=JOB | {"PYTHONPATH": str(tmp_path)})
    assert launched.wait() == 0
    assert launched.stdout == "runs\n"
    assert "No module named 'not_there'" in launched.stderr


def test_a_frozen_program_is_named_at_once(launch: Launch):
    launched = launch("sh", "-c", "echo $$ ready; exec sleep 60", environ=JOB | {"TPUJOB_GRACE_SECONDS": "2"})
    launched.wait_until_said("ready")
    child = int(launched.stdout.split()[0])
    os.kill(child, signal.SIGSTOP)
    launched.wait_until_said(f"the program is frozen: a signal (SIGSTOP) has stopped it; `kill -CONT {child}`")
    launched.send(signal.SIGTERM)
    assert launched.wait() == 137
    assert failed_at("\n".join(launched.message)) is not None
    assert "frozen" in launched.message[1]


def test_a_program_that_prints_nothing_shows_its_stacks_and_is_ended(launch: Launch):
    program = "import threading\nprint('ready', flush=True)\ndef hang(): threading.Event().wait()\nhang()"
    launched = launch(sys.executable, "-c", program, environ=JOB | {"TPUJOB_SILENCE_SECONDS": "2"})
    assert launched.wait() == 79
    message = "\n".join(launched.message)
    assert "it has printed nothing for 2 s (silenceSeconds)" in message
    assert 'File "<string>", line 3 in hang' in message
    assert failed_at(message) is not None


def test_silence_ends_a_program_that_is_no_python(launch: Launch):
    assert launch("sleep", "1000", environ=JOB | {"TPUJOB_SILENCE_SECONDS": "1"}).wait() == 79


def test_garbage_on_the_socket_is_dropped(tmp_path, caplog):
    with ProgramEnds(tmp_path) as ends, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        address = ends.variables({})[environment.LAUNCHER_SOCKET]
        odd = b'{"version": 1, "pid": 1e999, "code": 1, "at": 1, "error": "", "traceback": ""}'
        for content in (b"\xff", b"[]", b"{}", b'{"version": 1, "pid": "x"}', b'{"version": 99}', odd, b"[" * 9000):
            sender.sendto(content, address)
        assert ends.receive() == []
    assert len(caplog.records) == 1


def test_hook_and_contract_agree():
    assert start_hook.SOCKET == environment.LAUNCHER_SOCKET


def test_the_moment_of_a_failure_is_read_as_it_was_written():
    assert failed_at(f"exit code 1, crashed\n{failure_line(1764054000.25, 'E: x')}\nmore") == 1764054000.25
    assert failed_at("program failed at 2026-13-45T00:00:00.000000Z: x") is None
    assert failed_at("exit code 1, crashed") is None


@pytest.mark.parametrize(
    ("name", "content", "program"),
    [
        ("random", "def mine(): return 1", "from random import Random"),
        ("queue", "import queue\nqueue.Queue()", "import queue"),
        ("json", "", "import json\njson.dumps(1)"),
        ("traceback", "", "import traceback\ntraceback.print_exc()"),
    ],
    ids=["name that is not there", "imports itself", "needed by the report", "needed for the traceback"],
)
def test_file_that_hides_a_module_of_python_is_named(launch: Launch, tmp_path, name, content, program):
    (tmp_path / f"{name}.py").write_text(content)
    (tmp_path / "train.py").write_text(program)
    launched = launch(sys.executable, str(tmp_path / "train.py"), environ=JOB)
    assert launched.wait() == 1
    assert f"; {tmp_path}/{name}.py hides Python's own module {name}: rename it" in "\n".join(launched.message)


def test_error_of_a_program_beside_such_a_file_is_its_own(launch: Launch, tmp_path):
    (tmp_path / "random.py").write_text("")
    (tmp_path / "train.py").write_text("import random\nraise ValueError('no data')")
    launched = launch(sys.executable, str(tmp_path / "train.py"), environ=JOB)
    assert launched.wait() == 1
    assert launched.message[1].endswith("Z: ValueError: no data")
