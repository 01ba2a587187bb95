"""What the kubelet reads: words for people, cut where they are too long, and a whole last line for programs."""

import pytest

from tpujob_contract.reports import termination_message
from tpujob_contract.reports.termination_message import LIMIT_BYTES


@pytest.mark.parametrize(
    ("words", "last", "text"),
    [
        pytest.param("it ended", "", "it ended", id="words"),
        pytest.param("", "report: {}", "report: {}", id="last line"),
        pytest.param("it ended", "report: {}", "it ended\nreport: {}", id="both"),
        pytest.param("", "", "", id="nothing"),
        pytest.param(b"bytes of a program \xff", "", "bytes of a program ", id="bytes"),
        pytest.param("x" * 5000, "", "x" * LIMIT_BYTES, id="long words"),
        pytest.param(
            "x" * 5000, "report: {}", "x" * (LIMIT_BYTES - 11) + "\nreport: {}", id="long words and a last line"
        ),
        pytest.param("ö" * 5000, "r", "ö" * 2047 + "\nr", id="whole characters"),
    ],
)
def test_message_fits(words, last, text, tmp_path):
    assert termination_message.write(tmp_path / "message", words, last)
    assert (tmp_path / "message").read_text() == text


def test_limit_is_the_kubelet_s():
    assert LIMIT_BYTES == 4096


def test_place_is_the_one_asked_for(tmp_path):
    there = tmp_path / "there"
    there.touch()
    asked = {"TPUJOB_TERMINATION_LOG": str(tmp_path / "asked")}
    assert termination_message.find(asked, there) == tmp_path / "asked"
    assert termination_message.find({}, there) == there
    assert termination_message.find({}, tmp_path / "absent") is None


def test_message_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    assert not termination_message.write(tmp_path, "it ended")
    assert "Cannot write the termination message" in caplog.text


def test_a_message_that_is_cut_still_says_who_failed_first_and_when() -> None:
    named = f"{'host' * 40}: process 1 of 9: ended with process 7 on host b, which was first: E\n"
    cut = termination_message.shortened(f"{named}{termination_message.failure_line(5.5, 'E')}\n{'x' * 300}y", 200)
    assert (len(cut), termination_message.named_in(cut), termination_message.failed_at(cut)) == (200, 7, 5.5)
    assert cut.endswith("xy")
    assert termination_message.shortened("short", 200) == "short"


CRASHED = "exit code 1, crashed\n"
FAILED = termination_message.failure_line(5.5, "RuntimeError: Connection closed by peer")
LOST = "lost process 3 on host c: silent for 30 s: it hangs, or its machine or network is gone"
BEHIND = "no progress for 300 s; behind the others: process 3 on host c (training, after step 3)"


@pytest.mark.parametrize(
    "message",
    [
        LOST,
        f"host-1: process 1 of 4: {LOST}",
        f"host-1: process 1 of 4: asked to stop (SIGTERM at process 3 on host c), and {LOST}",
        f"{CRASHED}{LOST}\nits output",
        f"{CRASHED}{FAILED}\n{LOST}\nits output",
        f"{CRASHED}ended with process 3, which was first: exit code 3, crashed",
        BEHIND,
        f"host-1: process 1 of 4: {BEHIND}",
        f"exit code 79, stalled: no step for the limit\n{BEHIND}",
    ],
)
def test_the_launcher_s_sentence_names_the_process_that_was_first(message: str) -> None:
    assert termination_message.named_in(message) == 3
    shown = termination_message.shortened(message + "\n" + "x" * 300, 200)
    assert termination_message.named_in(shown) == 3, "also in what the operator keeps of a long message"


@pytest.mark.parametrize(
    "message",
    [
        f"{CRASHED}lost process 3 of the pool, restarting it",
        f"{CRASHED}{FAILED}\nlost process 3 of the pool, restarting it",
        f"{CRASHED}{termination_message.failure_line(5.5, 'its process ended')}\nstep 7\n{LOST}",
        f"{CRASHED}step 7\nthe driver: {LOST}",
        f"{CRASHED}step 7\n{BEHIND}",
        "host-1: process 1 of 4: RuntimeError: lost process 3: no heartbeat",
    ],
)
def test_words_of_a_program_s_own_name_no_process(message: str) -> None:
    assert termination_message.named_in(message) is None
