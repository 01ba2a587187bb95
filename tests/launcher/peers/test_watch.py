"""What launcher 0 says of the programs of an attempt: every case of it, with a clock that is passed."""

from typing import Any

import pytest

from tpujob_launcher.peers.messages import ASKED, END, LOST, MET, REFUSED, STALLED, End, Message
from tpujob_launcher.peers.watch import BACK_SECONDS, HEARTBEAT_SECONDS, UNSPOKEN_SECONDS, Watch

STARTUP_SECONDS = 4.0
VERSIONS = {"jax": "1.0", "flax": "2.0"}
KILLED = "its connection broke: it was killed or crashed; the exit code and the log of its pod have the cause"


def watch(size: int = 3) -> Watch:
    """With a launcher of every process, heard at 0."""
    made = Watch(0, [f"host-{i}" for i in range(size)], [f"slice 0, host {i}" for i in range(size)], STARTUP_SECONDS)
    for process in range(1, size):
        made.heard(process, 0.0)
    return made


def about(**changed: Any) -> dict[str, Any]:
    return {"attempt": 0, "configuration": "c0ffee", "versions": VERSIONS, **changed}


def end_of(said: list[Message]) -> Any:
    ((kind, values),) = said
    assert kind == END
    return values["end"]


def state(step: int = 5, seconds: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"step": step, "seconds": seconds, **more}


def test_all_meet_when_the_last_has_come() -> None:
    made = watch()
    assert made.joined(1, about(), 0.0, "a") == made.joined(2, about(), 1.0, "b") == []
    assert made.joined(0, about(), 2.0, "c") == [(MET, {"attempt": 0, "nonce": "c", "lead": "host-0"})]
    assert made.joined(1, about(), 3.0, "d") == [], "it came again, and is told what was said"
    assert made.announcements == [(MET, {"attempt": 0, "nonce": "c", "lead": "host-0"})]


def test_nobody_is_lost_the_moment_that_a_short_heartbeat_begins() -> None:
    made = watch(2)
    made.joined(1, about(), 0.0, "")
    made.joined(0, about(), 6.0, "")
    made.limit_seconds = 5.0
    assert made.look(10.9, 0.0) == []
    assert end_of(made.look(11.0, 0.0))["line"].startswith("silent for 5 s")


def test_who_is_missing_is_named_to_all() -> None:
    made = watch(4)
    made.joined(0, about(), 0.0, "")
    made.joined(2, about(), 1.0, "")
    assert made.look(STARTUP_SECONDS - 0.1, 0.0) == []
    ((kind, values),) = made.look(STARTUP_SECONDS, 0.0)
    assert (kind, values["error"]) == (REFUSED, "PeersMissingError")
    assert values["message"] == (
        "2 of 4 processes did not come within 4 s: process 1 (slice 0, host 1), process 3 (slice 0, host 3); "
        "see whether their pods are scheduled, whether their logs end before this, and whether they have the image of "
        "process 0"
    )


def test_thousands_that_are_missing_are_counted() -> None:
    made = watch(2000)
    made.joined(0, about(), 0.0, "")
    ((_, values),) = made.look(STARTUP_SECONDS, 0.0)
    assert values["message"].startswith("1999 of 2000 processes did not come within 4 s: process 1 (slice 0, host 1), ")
    assert "process 20 (slice 0, host 20) and 1979 more; see whether" in values["message"]


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
def test_who_runs_something_else_is_named(changed: dict[str, Any], words: str, lead_first: bool) -> None:
    made = watch(2)
    order = (0, 1) if lead_first else (1, 0)
    for process in order:
        said = made.joined(process, about(**(changed if process else {})), 0.0, "")
    ((kind, values),) = said
    assert (kind, values["error"]) == (REFUSED, "ConfigurationError")
    assert values["message"].startswith("process 1 on host host-1 and process 0 on host host-0 ")
    assert words in values["message"]


def test_a_connection_that_comes_again_is_no_loss() -> None:
    made = watch()
    made.gone(1, 1.0)
    made.heard(1, 1.0 + BACK_SECONDS / 2)
    assert made.look(1.0 + BACK_SECONDS, 0.0) == []
    made.gone(1, 10.0)
    assert made.seconds(10.0) == BACK_SECONDS
    found = end_of(made.look(10.0 + BACK_SECONDS, 0.0))
    assert (found["process"], found["kind"], found["line"]) == (1, LOST, KILLED)


def test_all_silent_ones_are_named_together() -> None:
    made = watch(4)
    made.heard(2, 5.0)
    found = end_of(made.look(HEARTBEAT_SECONDS, 0.0))
    assert found["line"].startswith("silent for 30 s (and so process 3 on host host-3): it hangs, or its machine")
    assert made.look(HEARTBEAT_SECONDS + 5.0, 0.0) == [], "one is enough"


def test_a_silent_one_is_named_long_before_it_counts_as_lost() -> None:
    made = watch()
    made.limit_seconds = UNSPOKEN_SECONDS
    made.heard(2, 20.0)
    assert made.silent(HEARTBEAT_SECONDS - 1) == []
    assert made.silent(HEARTBEAT_SECONDS) == ["process 1 on host host-1"]
    assert made.silent(HEARTBEAT_SECONDS + 1) == [], "once"
    made.heard(1, 40.0)
    assert made.silent(40.0 + HEARTBEAT_SECONDS) == ["process 2 on host host-2", "process 1 on host host-1"]
    assert made.look(UNSPOKEN_SECONDS, 0.0) == [], "it was heard"
    assert end_of(made.look(20.0 + UNSPOKEN_SECONDS, 0.0))["process"] == 2


@pytest.mark.parametrize(
    ("heartbeat", "named_after"), [(5.0, 30.0), (30.0, 30.0), (75.0, 30.0), (300.0, 120.0), (3600.0, 1440.0)]
)
def test_nobody_is_named_who_is_silent_between_two_beats(heartbeat: float, named_after: float) -> None:
    """Five come within a heartbeat."""
    made = watch()
    made.heartbeat_seconds, made.limit_seconds = heartbeat, 3600.0
    assert made.silent(named_after - 0.1) == []
    made.heard(2, named_after - 0.1)
    assert end_of(made.ended(End(2, 1, 1000.0, "a bug"), named_after - 0.1))["process"] == 2
    assert made.given_up() == []
    assert made.silent(named_after) == ["process 1 on host host-1"]


def test_the_first_word_of_who_failed_and_then_is_silent_stands() -> None:
    made = watch()
    assert end_of(made.ended(End(1, 1, 1000.0, "a bug"), 0.0))["line"] == "a bug"
    made.heard(1, 0.0)
    made.heard(2, 1.0)
    assert made.ended(End(2, 1, 1031.0, "Connection closed by peer"), HEARTBEAT_SECONDS) == []
    assert made.end is not None
    assert made.end.line == "a bug"


def test_all_silent_ones_are_given_up_also_once_the_attempt_has_ended() -> None:
    """A new pod may come for each, and nobody waits for a word of the old one."""
    made = watch(5)
    made.limit_seconds = 60.0
    made.heard(3, 20.0)
    made.heard(4, 30.0)
    made.ended(End(3, 1, 1000.0, "Connection closed by peer"), 31.0)
    assert (made.given_up(), made.given_up()) == ([1, 2], [])
    assert made.look(90.0, 0.0) == [], "one end is enough"
    assert made.given_up() == [4]


def test_what_programs_fail_with_while_one_is_silent_is_not_the_cause() -> None:
    """JAX aborts all processes after 100 s, and names none."""
    made = watch()
    made.limit_seconds = UNSPOKEN_SECONDS
    made.heard(2, 95.0)
    found = end_of(made.ended(End(2, 134, 1100.0, ""), 100.0))
    assert (found["process"], found["kind"]) == (1, LOST)
    assert found["line"].startswith("silent for 100 s: it hangs, or its machine or network is gone")


def test_an_error_with_a_reason_of_its_own_is_the_cause_though_another_is_silent() -> None:
    made = watch()
    assert end_of(made.ended(End(2, 78, 1100.0, "no such model"), 100.0))["process"] == 2


@pytest.mark.parametrize("process", [1, 2])
def test_who_ends_in_order_is_not_missed(process: int) -> None:
    made = watch()
    made.signed_off(process)
    made.gone(process, 1.0)
    assert made.look(20.0, 0.0) == []


def test_a_pod_that_is_gone_goes_before_the_errors_of_its_peers() -> None:
    made = watch()
    made.gone(2, 1.0)
    found = end_of(made.ended(End(0, 1, 100.0, "Gloo AllGather failed: Connection closed by peer")))
    assert (found["process"], found["kind"]) == (2, LOST)


def test_an_earlier_end_that_is_heard_later_takes_the_place_of_the_first() -> None:
    made = watch()
    assert end_of(made.ended(End(0, 1, 100.1, "Gloo AllGather failed")))["process"] == 0
    assert end_of(made.ended(End(1, 137, 100.2, "")))["process"] == 1
    assert made.ended(End(2, 1, 101.0, "Gloo AllGather failed")) == []
    assert made.ended(End(1, 1, 90.0, "")) == [], "the first word of each stands"


@pytest.mark.parametrize("reporter", [0, 1, 2])
def test_a_stall_names_who_is_behind_whoever_noticed(reporter: int) -> None:
    made = watch()
    for process, step in enumerate((6, 5, 6)):
        made.progressed(process, state(step), 0.0)
    found = end_of(made.ended(End(reporter, 79, 1.0, "no progress for 300 s", STALLED)))
    words = "no progress for 300 s; behind the others: process 1 on host host-1 (starting, after step 5)"
    assert found["line"] == words


def test_a_stall_stays_the_first_end_when_its_peers_fail() -> None:
    made = watch()
    for process, step in enumerate((6, 5, 6)):
        made.progressed(process, state(step), 0.0)
    made.ended(End(0, 79, 1.0, "no progress for 300 s", STALLED))
    assert made.ended(End(1, 1, 2.0, "Gloo AllGather failed")) == []


@pytest.mark.parametrize(
    ("lead", "beat_at", "named"),
    [
        (state(6, 13.0), 100.0, "process 1 on host host-1 (starting, after step 5)"),
        (state(6, 12.0), 100.0, ""),
        (state(6, 13.0, phase="failed"), 100.0, ""),
        (state(6, 13.0), 90.0, ""),
    ],
    ids=["nobody goes on", "steps are made", "at the end", "others have said nothing since"],
)
def test_a_straggler_is_named_while_nobody_goes_on(lead: dict[str, Any], beat_at: float, named: str) -> None:
    made = watch()
    made.progressed(1, state(5), beat_at)
    made.progressed(2, state(6), beat_at)
    made.progressed(0, lead, 100.0)
    assert made.stragglers(100.0) == named


def test_the_first_who_was_asked_is_known_to_all() -> None:
    made = watch()
    assert made.was_asked(2, "SIGTERM") == [(ASKED, {"attempt": 0, "who": "SIGTERM at process 2 on host host-2"})]
    assert made.was_asked(1, "SIGTERM") == []


@pytest.mark.parametrize("values", [{"mood": "fine"}, {"step": "5"}, {"where": 7}, {"seconds": None}])
def test_what_is_no_progress_is_left_alone(values: dict[str, Any]) -> None:
    made = watch()
    made.progressed(1, values, 0.0)
    made.progressed(0, state(6, 90.0), 0.0)
    assert made.stragglers(0.0) == ""


@pytest.mark.parametrize("seconds", [10**400, float("inf"), float("nan")], ids=["long", "inf", "nan"])
def test_a_time_that_is_none_is_left_alone(seconds: float) -> None:
    made = watch()
    made.progressed(1, state(5), 100.0)
    made.progressed(2, state(6), 100.0)
    made.progressed(0, state(6, seconds), 100.0)
    assert made.stragglers(100.0) == ""
