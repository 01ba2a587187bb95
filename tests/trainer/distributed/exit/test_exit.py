"""Real processes: `run_to_exit` ends the one it runs in. The module imports no JAX, so each takes
a quarter of a second.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tpujob_trainer.distributed.exit import process_exit
from tpujob_trainer.distributed.kv_store import CoordinationError
from tpujob_trainer.values import errors

PREAMBLE = """
import hashlib, logging, os, signal, sys, threading
from pathlib import Path
from tpujob_contract import ContractError, ExitCode
from tpujob_trainer.values import errors
from tpujob_trainer.distributed.exit import process_exit
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
def ready():
    print("ready", flush=True)
def compile_for_a_minute():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)  # one C call, without the interpreter's lock
def main(stop):
"""


class Child:
    """A Python process that runs a body of `main(stop)`."""

    def __init__(self, body, tmp_path, *, grace_seconds=30):
        self.termination_log = tmp_path / "termination"
        source = (
            PREAMBLE
            + textwrap.indent(textwrap.dedent(body), "    ")
            + f"\nprocess_exit.run_to_exit(main, None, grace_seconds={grace_seconds})\n"
        )
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TPUJOB_TERMINATION_LOG": str(self.termination_log),
        }
        self.popen = subprocess.Popen(
            [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
        )

    def line(self):
        assert self.popen.stdout is not None
        return self.popen.stdout.readline()

    def signal(self, number):
        """Sends a signal once the body says that it is ready; returns when, by the monotonic clock."""
        assert self.line() == "ready\n"
        now = time.monotonic()
        self.popen.send_signal(number)
        return now

    def end(self):
        """Exit code, standard error and termination message."""
        try:
            _, log = self.popen.communicate(timeout=300)
        finally:
            self.popen.kill()
        message = self.termination_log.read_text() if self.termination_log.is_file() else ""
        return self.popen.returncode, log, message


def test_request_to_stop_during_the_first_imports_is_handled():
    source = """
import os, runpy, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "tpujob_trainer.main":
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Finder())
runpy.run_module("tpujob_trainer", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, timeout=300, check=False)
    assert done.returncode == 75, done.stderr


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("return 0", 0, ""),
        ("return ExitCode.STOPPED", 75, "asked to stop; what was committed is there"),
        ("raise errors.ConfigurationError('spec.x: 1 is not 2')", 78, "spec.x: 1 is not 2"),
        ("raise errors.NotFoundError('no bucket')", 77, "no bucket"),
        ("raise ContractError('lacks TPUJOB_SLICE')", 78, "lacks TPUJOB_SLICE"),
        ("raise ValueError('two\\n  lines')", 1, "ValueError: two lines"),
        ("sys.exit(3)", 3, "something called sys.exit(3), which is not how a run ends"),
        # Kubernetes would count the process as done, and its peers would wait for ever.
        ("sys.exit()", 1, "something called sys.exit(0), which is not how a run ends"),
        ("sys.exit('in words')", 1, "in words"),
        ("raise KeyboardInterrupt", 75, "interrupted"),
        # A thread of a library must not keep the process from ending.
        ("threading.Thread(target=threading.Event().wait).start(); return 0", 0, ""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_ending_says_its_cause(body, code, message, tmp_path):
    found, log, termination = Child(body, tmp_path).end()
    assert found == code, log
    assert ("Traceback" in log) == any(each in body for each in ("ValueError", "KeyboardInterrupt"))
    if message:
        host, _, cause = termination.partition(": ")
        assert (host, cause) == (os.uname().nodename, message)
        assert log.splitlines()[-1].endswith(termination)
    else:
        assert termination == ""


def test_crash_in_a_library_leaves_the_stacks(tmp_path):
    code, log, _ = Child("import ctypes; ctypes.string_at(0)", tmp_path).end()
    assert code == -signal.SIGSEGV
    assert "Segmentation fault" in log
    assert "in main" in log


@pytest.mark.parametrize(
    ("ending", "words"), [("return 0", []), ("raise errors.DivergedError('nan' * 5000)", ["nannan"])], ids=["0", "76"]
)
def test_last_report_is_in_the_termination_message(ending, words, tmp_path):
    body = "stop.final_report = lambda: {'step': 3, 'loss': None}; stop.at_exit(lambda *_: None); " + ending
    _, _, termination = Child(body, tmp_path).end()
    *lines, last = termination.splitlines()
    assert json.loads(last.removeprefix("report: ")) == {"step": 3, "loss": None}
    assert [word for word, line in zip(words, lines, strict=True) if word in line] == words
    assert len(termination.encode()) <= 4096


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_is_handled_during_a_compile(number, tmp_path):
    child = Child("ready(); compile_for_a_minute(); return 0", tmp_path)
    begun = child.signal(number)
    code, _, message = child.end()
    assert code == 75
    assert f"{number.name} outside the training loop" in message
    assert time.monotonic() - begun < 25, "less than the compile takes, and than the grace period"


def test_signal_in_the_loop_is_left_to_the_loop(tmp_path):
    child = Child(
        """
        stop.entered_loop()
        assert stop.seconds_left() == float("inf")
        ready()
        while not stop.requested:
            threading.Event().wait(0.01)
        assert 15 < stop.seconds_left() <= 25
        print("saved", flush=True)
        return ExitCode.STOPPED
        """,
        tmp_path,
    )
    child.signal(signal.SIGTERM)
    assert child.line() == "saved\n"
    assert child.end()[0] == 75


def test_signal_after_the_loop_ends_at_once(tmp_path):
    child = Child("stop.entered_loop(); stop.left_loop(); ready(); compile_for_a_minute()", tmp_path)
    child.signal(signal.SIGTERM)
    assert child.end()[0] == 75


def test_grace_period_ends_a_process_that_does_not_stop(tmp_path):
    child = Child(
        """
        stop.final_report = lambda: {"checkpoint_message": "gs://b refuses: Forbidden"}
        stop.entered_loop()
        ready()
        threading.Event().wait()
        """,
        tmp_path,
        grace_seconds=20,
    )
    begun = child.signal(signal.SIGTERM)
    code, _, message = child.end()
    assert code == 75
    assert "the grace period is over; what was not committed is lost (gs://b refuses: Forbidden)" in message
    assert 15 < time.monotonic() - begun < 20


def test_second_signal_ends_at_once(tmp_path):
    body = """
        stop.entered_loop()
        ready()
        while not stop.requested:
            threading.Event().wait(0.01)
        threading.Event().wait(1.2)  # the same request may come twice within a second
        ready()
        compile_for_a_minute()
        """
    child = Child(body, tmp_path)
    child.signal(signal.SIGTERM)
    child.signal(signal.SIGTERM)
    code, _, message = child.end()
    assert code == 75
    assert "again" in message


def test_signal_that_comes_twice_at_once_is_one_request(tmp_path):
    body = """
        process_exit.SAME_REQUEST_SECONDS = 300
        stop.entered_loop()
        ready()
        while not stop.requested:
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(0.5)
        return ExitCode.STOPPED
        """
    child = Child(body, tmp_path)
    child.signal(signal.SIGTERM)
    assert child.end()[2].endswith("asked to stop; what was committed is there")


def test_exit_callbacks_run_before_the_end(tmp_path):
    body = """
        stop.at_exit(lambda code, message: print(code, message, flush=True))
        stop.at_exit(lambda code, message: 1 / 0)
        stop.at_exit(lambda code, message: print("and more", flush=True))
        raise errors.DivergedError("loss is nan at step 3")
        """
    child = Child(body, tmp_path)
    assert child.line() == "76 loss is nan at step 3\n"
    assert child.line() == "and more\n"
    assert child.end()[0] == 76


def test_termination_message_that_cannot_be_written_is_no_crash(tmp_path):
    (tmp_path / "termination").mkdir()
    code, log, _ = Child("raise errors.StalledError('no step')", tmp_path).end()
    assert code == 79
    assert "Cannot write the termination message" in log


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("INTERNAL: [external/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]"),
        RuntimeError("UNAVAILABLE: Task 1 heartbeat timeout. This indicates that the remote task has failed"),
        ValueError("UNKNOWN: Gloo all-reduce failed: Read error [::1]:1: Connection reset by peer"),
        CoordinationError("process 1 said nothing about restore within 5 s"),
    ],
    ids=lambda error: str(error)[:20],
)
def test_lost_peer_is_not_blamed_on_this_process(error):
    code, message = process_exit.explain(error)
    assert code == 1
    assert message.startswith("lost another process, whose own log has the cause; seen here: ")


def test_what_storage_refuses_is_not_tried_again():
    assert process_exit.explain(OSError("Forbidden: b/runs/o")) == (77, "OSError: Forbidden: b/runs/o")
    assert process_exit.explain(OSError(5, "Input/output error"))[0] == 1
    assert process_exit.explain(KeyError("Forbidden"))[0] == 1, "a word of a program's own"


def test_own_fault_is_not_blamed_on_a_peer():
    assert process_exit.explain(RuntimeError("RESOURCE_EXHAUSTED: out of memory")) == (
        1,
        "RuntimeError: RESOURCE_EXHAUSTED: out of memory",
    )
    assert process_exit.explain(errors.NotFoundError("gs://b: broken pipe")) == (77, "gs://b: broken pipe")
