"""Output passes through unharmed, and its end is remembered."""

import hashlib
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.harness.launched import JOB, LAUNCHER, PYTHON
from tests.launcher.conftest import Launch
from tpujob_launcher.supervise.output import Output, Tail

MEGABYTE = """
import hashlib, os, sys
data = os.urandom(1 << 20)
for descriptor in (1, 2):
    rest = data
    while rest:
        rest = rest[os.write(descriptor, rest):]
with open(sys.argv[1], "w") as file:
    file.write(hashlib.sha256(data).hexdigest())
"""


@pytest.fixture
def environ(tmp_path):
    return {"PATH": os.environ["PATH"], "TPUJOB_TERMINATION_LOG": str(tmp_path / "termination-log")}


def test_a_megabyte_passes_byte_for_byte(launch: Launch, tmp_path):
    launched = launch(*PYTHON, MEGABYTE, str(tmp_path / "sum"))
    assert launched.wait() == 0
    sha256 = (tmp_path / "sum").read_text()
    assert hashlib.sha256(launched.stdout_file.read_bytes()).hexdigest() == sha256
    # The launcher's own first line precedes the program's on stderr.
    own, _, stderr = launched.stderr_file.read_bytes().partition(b"\n")
    assert own.startswith(b"tpujob launch: ")
    assert hashlib.sha256(stderr).hexdigest() == sha256


def test_output_comes_while_the_program_runs(launch: Launch):
    launched = launch(*PYTHON, "import os, signal; os.write(1, b'no newline yet'); signal.pause()")
    launched.wait_until_said("no newline yet")
    launched.send(signal.SIGTERM)
    assert launched.wait() == 143


def test_reader_that_reads_late_gets_everything(environ):
    program = "import os; os.write(2, b'start\\n'); os.write(1, b'x' * (1 << 20)); os.write(1, b'end')"
    with subprocess.Popen(
        [*LAUNCHER, "--", *PYTHON, program], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while process.stderr.readline() != b"start\n":
            pass
        # The pipes are full now, for a megabyte does not fit: the program waits for us, as it would without a launcher.
        assert process.stdout.read() == b"x" * (1 << 20) + b"end"
        assert process.wait(300) == 0


def test_program_whose_reader_hangs_can_be_stopped(environ):
    program = "import os; os.write(2, b'start\\n'); os.write(1, b'x' * (1 << 20))"
    environ |= JOB | {"TPUJOB_GRACE_SECONDS": "1"}
    with subprocess.Popen(
        [*LAUNCHER, "--", *PYTHON, program], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        while process.stderr.readline() != b"start\n":
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 143


def test_reader_that_left_breaks_the_programs_pipe(environ):
    program = """
import os, signal
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
try:
    while True:
        os.write(1, b"x" * 4096)
except BrokenPipeError:
    os._exit(5)
"""
    with subprocess.Popen(
        [*LAUNCHER, "--", *PYTHON, program], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(300) == 5
        assert b"Traceback" not in process.stderr.read()


def test_order_of_stdout_and_stderr_is_kept_when_both_go_to_one_place(environ):
    program = "import os\nfor i in range(2000): os.write(1 + i % 2, b'%d\\n' % i)"
    result = subprocess.run(
        [*LAUNCHER, "--", *PYTHON, program], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    assert result.stdout.split(b"\n", 1)[1].split() == [b"%d" % i for i in range(2000)]


@pytest.mark.skipif(
    Path("/dev/termination-log").exists(), reason="here is a container of Kubernetes: there is a message"
)
def test_program_keeps_the_terminal_where_no_message_is_read():
    controller, terminal = os.openpty()
    try:
        program = "import os; raise SystemExit(0 if os.isatty(1) and os.isatty(2) else 1)"
        command = [*LAUNCHER, "--", *PYTHON, program]
        result = subprocess.run(command, env={"PATH": os.environ["PATH"]}, stdout=terminal, stderr=terminal)
    finally:
        os.close(controller)
        os.close(terminal)
    assert result.returncode == 0


@pytest.mark.parametrize(
    ("fed", "remembered"),
    [
        pytest.param([], b"", id="nothing"),
        pytest.param([(1, b"a\nb\n")], b"a\nb", id="lines"),
        pytest.param([(1, b"a\nb")], b"a\nb", id="an unfinished line counts"),
        pytest.param([(1, b"a"), (1, b"b\n")], b"ab", id="a line in two pieces"),
        pytest.param([(2, b"e\n"), (1, b"o\n"), (2, b"f\n")], b"o\ne\nf", id="stderr comes last"),
        pytest.param([(2, b"error\n"), (1, b"x\n" * 99)], b"x\n" * 7 + b"error", id="stdout cannot push stderr out"),
        pytest.param([(1, b"0123456789\n" * 3)], b"0123456789", id="the oldest lines go first"),
        pytest.param([(1, b"x" * 1000)], b"x" * 16, id="an endless line keeps its end"),
        pytest.param([(1, b"\xff\x00\n")], b"\xff\x00", id="bytes, not text"),
    ],
)
def test_tail_remembers_the_last_lines(fed, remembered):
    tail = Tail(limit_bytes=16)
    for stream, data in fed:
        tail.feed(stream, data)
    assert tail.last_lines() == remembered


def test_who_waits_for_a_slow_reader_does_other_things_meanwhile() -> None:
    output, has_read, turns = Output(), threading.Event(), []
    output.start()
    output._threads.append(threading.Thread(target=has_read.wait, daemon=True))
    output._threads[-1].start()

    def turn() -> None:
        turns.append(1)
        if len(turns) == 3:
            has_read.set()

    assert output.finish(60.0, turn)
    assert len(turns) >= 3
