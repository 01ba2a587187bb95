"""What launcher 0 says of the programs of an attempt: every case of it, with a clock that is passed."""

from typing import Any

import pytest

from tests.launcher.peers.rounds import (
    KILLED,
    STARTUP_SECONDS,
    VERSIONS,
    about,
    connected,
    end,
    first,
    fresh,
    progress,
    restart,
)
from tpujob_contract.reports.first_end import first_of
from tpujob_launcher.peers.messages import LOST, STALLED, End, known_of
from tpujob_launcher.peers.timing import (
    HEARTBEAT_SECONDS,
    RECONNECT_SECONDS,
    UNCONNECTED_SECONDS,
)


def test_all_meet_when_the_last_has_joined() -> None:
    made = connected(nonce="ab")
    for number, process in enumerate((1, 2)):
        made.join(process, about(), float(number))
    assert "met" not in made.state
    made.join(0, about(), 2.0)
    assert made.state["met"] == {"nonce": "ab0", "lead": "host-0"}


def test_no_process_is_lost_the_moment_that_a_short_heartbeat_begins() -> None:
    made = connected(2)
    made.join(1, about(), 0.0)
    made.join(0, about(), 6.0)
    made.limit_seconds = 5.0
    made.tick(10.9, 0.0)
    assert "first" not in made.state
    made.tick(11.0, 0.0)
    assert first(made)["line"].startswith("silent for 5 s")


def test_a_missing_process_is_named_to_all() -> None:
    made = connected(4)
    made.join(0, about(), 0.0)
    made.join(2, about(), 1.0)
    made.limit_seconds = 2 * STARTUP_SECONDS
    made.tick(STARTUP_SECONDS - 0.1, 0.0)
    assert "refused" not in made.state
    made.tick(STARTUP_SECONDS, 0.0)
    assert made.state["refused"] == {
        "error": "PeersMissingError",
        "message": "2 of 4 processes did not come within 100 s: process 1 (slice 0, host 1), process 3 (slice 0, "
        "host 3); see whether their pods are scheduled, whether their logs end before this, and whether they have "
        "the image of process 0",
    }


def test_thousands_of_missing_processes_are_counted() -> None:
    made = fresh(2000)
    made.join(0, about(), 0.0)
    made.tick(STARTUP_SECONDS, 0.0)
    words = made.state["refused"]["message"]
    assert words.startswith("1999 of 2000 processes did not come within 100 s: process 1 (slice 0, host 1), ")
    assert "process 20 (slice 0, host 20) and 1979 more; see whether" in words


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"configuration": "decaf"}, "have different configurations (decaf and c0ffee)"),
        ({"versions": {"jax": "1.1", "flax": "2.0"}}, "have different versions: jax 1.1 and 1.0;"),
        ({"versions": {"jax": "1.0"}}, "flax none and 2.0;"),
        ({"versions": {**VERSIONS, "optax": "3"}}, "optax 3 and none;"),
        ({"versions": "new"}, "flax none and 2.0, jax none and 1.0;"),
    ],
)
@pytest.mark.parametrize("lead_first", [False, True])
def test_a_process_that_runs_something_else_is_named(changed: dict[str, Any], words: str, lead_first: bool) -> None:
    made = connected(2)
    for process in (0, 1) if lead_first else (1, 0):
        made.join(process, about(**(changed if process else {})), 0.0)
    refused = made.state["refused"]
    assert refused["error"] == "ConfigurationError"
    assert refused["message"].startswith("process 1 on host host-1 and process 0 on host host-0 ")
    assert words in refused["message"]


# Launchers disappear.


def test_a_connection_that_is_restored_is_no_loss() -> None:
    made = connected()
    made.disconnected(1, 1.0)
    made.connected(1, 1.0 + RECONNECT_SECONDS / 2, host="host-1")
    made.tick(1.0 + RECONNECT_SECONDS, 0.0)
    assert "first" not in made.state
    made.disconnected(1, 10.0)
    assert made.seconds(10.0) == RECONNECT_SECONDS
    made.tick(10.0 + RECONNECT_SECONDS, 0.0)
    assert (first(made)["process"], first(made)["kind"], first(made)["line"]) == (1, LOST, KILLED)


def test_all_silent_processes_are_named_together() -> None:
    made = connected(4)
    made.receive(2, ("heartbeat", {}), 5.0, 0.0)
    made.tick(HEARTBEAT_SECONDS, 0.0)
    known = first(made)
    assert known["line"].startswith("silent for 30 s (and so process 3 on host host-3): it hangs, or its machine")
    made.tick(HEARTBEAT_SECONDS + 5.0, 0.0)
    assert first(made) == known, "one is enough"


def test_a_silent_process_is_named_long_before_it_counts_as_lost() -> None:
    made = connected()
    made.limit_seconds = UNCONNECTED_SECONDS
    made.receive(2, ("heartbeat", {}), 20.0, 0.0)
    assert made.newly_silent(HEARTBEAT_SECONDS - 1) == []
    assert made.newly_silent(HEARTBEAT_SECONDS) == ["process 1 on host host-1"]
    assert made.newly_silent(HEARTBEAT_SECONDS + 1) == [], "once"
    made.receive(1, ("heartbeat", {}), 40.0, 0.0)
    assert made.newly_silent(40.0 + HEARTBEAT_SECONDS) == ["process 2 on host host-2", "process 1 on host host-1"]
    made.tick(UNCONNECTED_SECONDS, 0.0)
    assert "first" not in made.state
    made.tick(20.0 + UNCONNECTED_SECONDS, 0.0)
    assert first(made)["process"] == 2


@pytest.mark.parametrize(
    ("heartbeat", "named_after"), [(5.0, 30.0), (30.0, 30.0), (75.0, 30.0), (300.0, 120.0), (3600.0, 1440.0)]
)
def test_no_process_is_named_between_two_heartbeats(heartbeat: float, named_after: float) -> None:
    """Five come within the limit."""
    made = connected()
    made.heartbeat_seconds, made.limit_seconds = heartbeat, 3600.0
    assert made.newly_silent(named_after - 0.1) == []
    made.receive(2, ("heartbeat", {}), named_after - 0.1, 0.0)
    made.ended(end(2), 0, named_after - 0.1)
    assert (first(made)["process"], made.given_up()) == (2, [])
    assert made.newly_silent(named_after) == ["process 1 on host host-1"]


def test_all_silent_launchers_are_given_up_also_once_the_attempt_has_ended() -> None:
    """A new pod may come for each, and no message of the old one is expected."""
    made = connected(5)
    made.limit_seconds = 60.0
    made.receive(3, ("heartbeat", {}), 20.0, 0.0)
    made.receive(4, ("heartbeat", {}), 30.0, 0.0)
    made.ended(end(3, line="Connection closed by peer"), 0, 31.0)
    assert (made.given_up(), made.given_up()) == ([1, 2], [])
    known = first(made)
    made.tick(90.0, 0.0)
    assert (first(made), made.given_up()) == (known, [4])


@pytest.mark.parametrize(
    ("code", "cause", "line"),
    [(134, 1, "silent for 100 s: it hangs, or its machine or network is gone"), (78, 2, "")],
    ids=["JAX aborts all after 100 s", "a reason of its own"],
)
def test_an_error_while_another_process_is_silent_is_probably_its_effect(code: int, cause: int, line: str) -> None:
    made = connected()
    made.limit_seconds = UNCONNECTED_SECONDS
    made.receive(2, ("heartbeat", {}), 95.0, 0.0)
    made.ended(end(2, code, ""), 0, 100.0)
    assert (first(made)["process"], first(made)["line"][: len(line)]) == (cause, line)


@pytest.mark.parametrize("process", [1, 2])
def test_a_program_that_ends_in_order_is_not_missed(process: int) -> None:
    made = connected()
    made.receive(process, ("bye", {}), 0.5, 0.0)
    made.disconnected(process, 1.0)
    made.tick(20.0, 0.0)
    assert "first" not in made.state


# The first failure.


def test_a_lost_connection_comes_before_the_errors_of_its_peers() -> None:
    made = connected()
    made.disconnected(2, 1.0)
    made.ended(end(0, line="Gloo AllGather failed: Connection closed by peer"), 0, 1.1)
    assert (first(made)["process"], first(made)["kind"]) == (2, LOST)


def test_an_earlier_end_that_is_reported_later_replaces_the_first() -> None:
    made = connected()
    for one, process in (
        (end(0, line="Gloo AllGather failed", at=100.1), 0),
        (end(1, 137, "", 100.2), 1),
        (end(2, line="Gloo AllGather failed", at=101.0), 1),
        (end(1, line="", at=90.0), 1),
    ):
        made.ended(one, 0, 0.0)
        assert first(made)["process"] == process
    assert (first(made)["at"], restart(made, 11.0)) == (100.2, "process 1 ended with exit code 137")


@pytest.mark.parametrize(
    ("ends", "process"),
    [
        ([end(1, at=5.0), end(2, line="lost process 1 on host b: its connection broke", at=4.0)], 1),
        ([end(0, line="ended with process 2 on host c, which was first: x", at=1.0), end(2, at=9.0)], 2),
        ([end(0, line="vm: process 0 of 3: ended with process 2 on host c, which was first: x"), end(2, at=101.0)], 2),
        ([end(0, line="lost process 1 of the pool", at=1.0), end(2, at=9.0)], 0),
        ([end(1, line="no step; behind the others: process 1 on host b", at=5.0), end(2, at=9.0)], 1),
        ([end(1, code=134, at=5.0), End(2, 137, 25.0, "", is_lost=True)], 2),
    ],
    ids=["lost another", "follows", "as its last line", "words of a program's own", "names itself", "a lost pod"],
)
def test_the_line_of_an_end_says_whether_it_follows_from_another(ends: list[End], process: int) -> None:
    assert first_of(ends, known_of).process == process


@pytest.mark.parametrize("reporter", [0, 1, 2])
def test_a_stall_names_the_process_that_is_behind_and_stays_first(reporter: int) -> None:
    made = connected()
    for process, step in enumerate((6, 5, 6)):
        made.now.progressed(process, progress(step), 0.0)
    made.ended(end(reporter, 79, "no progress for 300 s", 1.0, STALLED), 0, 0.0)
    words = "no progress for 300 s; behind the others: process 1 on host host-1 (starting, after step 5)"
    assert first(made)["line"] == words
    made.ended(end((reporter + 1) % 3, line="Gloo AllGather failed", at=2.0), 0, 0.0)
    assert first(made)["line"] == words


@pytest.mark.parametrize(
    ("lead", "reported_at", "named"),
    [
        (progress(6, 13.0), 100.0, "process 1 on host host-1 (starting, after step 5)"),
        (progress(6, 12.0), 100.0, ""),
        (progress(6, 13.0, phase="failed"), 100.0, ""),
        (progress(6, 13.0), 90.0, ""),
        (progress(6, 10**400), 100.0, ""),
        (progress(6, float("inf")), 100.0, ""),
        (progress(6, float("nan")), 100.0, ""),
        ({"mood": "fine"}, 100.0, ""),
        ({"where": 7}, 100.0, ""),
        (None, 100.0, ""),
    ],
    ids=["none goes on", "steps", "at the end", "no later report", "long", "inf", "nan", "other", "number", "nothing"],
)
def test_a_straggler_is_named_while_none_goes_on(lead: Any, reported_at: float, named: str) -> None:
    made = connected()
    made.now.progressed(1, progress(5), reported_at)
    made.now.progressed(2, progress(6), reported_at)
    made.now.progressed(0, lead, 100.0)
    assert made.stragglers(100.0) == named


def test_the_first_process_that_was_asked_to_stop_is_known_to_all() -> None:
    made = connected()
    made.asked(2, "SIGTERM")
    made.asked(1, "SIGTERM")
    assert made.state["asked"] == "SIGTERM at process 2 on host host-2"
