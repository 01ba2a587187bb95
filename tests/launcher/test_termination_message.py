"""The termination message: what explains an end when the pod is gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.launched import PYTHON
from tests.launcher.conftest import Launch
from tpujob_contract.environment import TERMINATION_LOG
from tpujob_contract.reports.report import split_final_report
from tpujob_contract.reports.termination_message import LIMIT_BYTES
from tpujob_launcher.reports.termination_message import TerminationMessage, compose


@pytest.mark.parametrize(
    ("exit_code", "diagnostics", "output", "message"),
    [
        pytest.param(77, [], b"", "exit code 77, no permission or not found", id="the code in words"),
        pytest.param(1, [], b"a\n\nb\n", "exit code 1, crashed\na\nb", id="last lines"),
        pytest.param(137, ["r"], b"a\n", "exit code 137, killed by SIGKILL\nr\na", id="diagnostics come first"),
        pytest.param(
            1, [], b"10%\r20%\r\x1b[31mred\x1b[0m\x07\n", "exit code 1, crashed\n10%\n20%\nred", id="no terminal codes"
        ),
        pytest.param(1, [], b"\xff\xfe\n", "exit code 1, crashed\n\ufffd\ufffd", id="not text"),
    ],
)
def test_message_reads(exit_code, diagnostics, output, message):
    assert compose(exit_code, diagnostics, output).decode() == message


def test_message_keeps_the_end_of_long_output():
    lines = compose(1, [], b"".join(b"line %d\n" % i for i in range(10_000))).decode().splitlines()
    assert lines[0] == "exit code 1, crashed"
    assert lines[1:] == [f"line {i}" for i in range(10_000)][-(len(lines) - 1) :]
    assert len(lines) > LIMIT_BYTES / len("line 9999\n") - 3


def test_message_keeps_the_end_of_one_endless_line():
    message = compose(1, [], "ü".encode() * 10_000 + b"!").decode()
    assert message.endswith("üü!")
    assert LIMIT_BYTES - 2 <= len(message.encode()) <= LIMIT_BYTES


@given(
    st.integers(0, 255),
    st.lists(st.text("aü\n", max_size=3000), max_size=3),
    st.lists(st.binary(max_size=60) | st.sampled_from([b"\n", "ü".encode(), b"x" * 5000]), max_size=200).map(b"".join),
)
def test_message_fits_and_is_text(exit_code, diagnostics, output):
    message = compose(exit_code, diagnostics, output)
    assert len(message) <= LIMIT_BYTES
    assert message.decode().startswith(f"exit code {exit_code},")


ACCOUNT = 'in place: {"counts":{"crash":1},"last":{}}'


@pytest.mark.parametrize(
    ("left", "message"),
    [
        pytest.param("", f"exit code 1, crashed\nlast\n{ACCOUNT}", id="nothing"),
        pytest.param("a bug", f"a bug\n{ACCOUNT}", id="its words"),
        pytest.param('a bug\nreport: {"step": 4}', f'a bug\nreport: {{"step": 4}}\n{ACCOUNT}', id="words, a report"),
        pytest.param("ü" * LIMIT_BYTES, f"{'ü' * ((LIMIT_BYTES - len(ACCOUNT) - 1) // 2)}\n{ACCOUNT}", id="too much"),
    ],
)
def test_account_of_attempts_follows_what_the_program_left(left, message, tmp_path):
    file = tmp_path / "message"
    kept = TerminationMessage({TERMINATION_LOG: str(file)})
    kept.last_line = ACCOUNT
    file.write_text(left)
    kept.write(1, output=b"last")
    assert file.read_text() == message
    assert split_final_report(message)[1] == ('{"step": 4}' if "report" in left else None)


def test_crash_is_explained_by_its_last_lines(launch: Launch):
    # What was printed comes out after the traceback, because stdout is buffered.
    launched = launch(*PYTHON, "print('step 1\\n' * 9999); raise ValueError('batch of 3 on 2 hosts')")
    assert launched.wait() == 1
    assert launched.message[0] == "exit code 1, crashed"
    assert launched.message[-1] == "ValueError: batch of 3 on 2 hosts"
    assert "step 1" in launched.message
    assert launched.stderr.endswith("ValueError: batch of 3 on 2 hosts\n")


def test_signal_is_named(launch: Launch):
    launched = launch("sh", "-c", "echo last words >&2; kill -KILL $$")
    assert launched.wait() == 137
    assert launched.message == ["exit code 137, killed by SIGKILL", "last words"]


def test_success_is_one_line(launch: Launch):
    launched = launch("echo", "much to say")
    assert launched.wait() == 0
    assert launched.message == ["exit code 0, finished"]


def test_programs_own_message_is_kept(launch: Launch):
    launched = launch("sh", "-c", "echo mine > $TPUJOB_TERMINATION_LOG; echo noise >&2; exit 77")
    assert launched.wait() == 77
    assert launched.message == ["mine"]


def test_message_of_an_earlier_attempt_is_not_taken_for_this_ones(launch: Launch, tmp_path):
    old = tmp_path / "log"
    old.write_text("old")
    launched = launch("false", environ={"TPUJOB_TERMINATION_LOG": str(old)})
    assert launched.wait() == 1
    assert old.read_text() == "exit code 1, crashed"


def test_unwritable_message_does_not_keep_the_program_from_running(launch: Launch, tmp_path):
    launched = launch("echo", "done", environ={"TPUJOB_TERMINATION_LOG": str(tmp_path / "no" / "log")})
    assert launched.wait() == 0
    assert launched.stdout == "done\n"
    assert "Cannot write the termination message" in launched.stderr


@pytest.mark.parametrize(
    ("exists", "is_wanted"), [pytest.param(True, True, id="in a pod"), pytest.param(False, False, id="on a laptop")]
)
def test_kubelets_file_is_used_where_it_is(tmp_path, exists, is_wanted):
    path = tmp_path / "termination-log"
    if exists:
        path.touch()
    message = TerminationMessage({}, default_path=path)
    message.write(76)
    assert message.is_wanted == is_wanted
    assert path.exists() == exists
    if exists:
        assert path.read_text() == "exit code 76, diverged: non-finite loss"
