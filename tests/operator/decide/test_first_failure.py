"""Whose failure is shown."""

import pytest

from tests.operator.building import NOW, ended, job, jobset, observed, recorded, stored
from tpujob_contract.reports.termination_message import failure_line
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.first_failure import MESSAGE_LENGTH, first_failure, recorded_end
from tpujob_operator.decide.chain import decide
from tpujob_operator.observe.state import Ended
from tpujob_resource.models.status import Failure
from tpujob_resource.models.times import EARLIEST


def failed(after: float) -> str:
    """The message of a program that failed so many seconds after `NOW`."""
    return failure_line(NOW.timestamp() + after, "E: a")


NAMES = "ended with process 1 on host b, which was first: exit code 1, crashed\n" + "x" * 4000
CAUSES = {
    # name: (ends, index of the host to be named)
    "the earlier one": ([ended(0, 134, after=2), ended(1, 1, after=1)], 1),
    "the fatal one, although it was asked to stop": ([ended(0, 1), ended(1, 78, was_asked=True)], 1),
    "not one that was asked to stop": ([ended(0, 143, was_asked=True), ended(1, 1, after=2)], 1),
    "not one that stopped by contract": ([ended(0, 75), ended(1, 137, after=3)], 1),
    "the one with a code of its own within a second": ([ended(0, 1), ended(1, 134)], 1),
    "the one that says it failed first, though it ended last": (
        [ended(0, 1, message=failed(0.75)), ended(1, 1, after=3, message=failed(0.25))],
        1,
    ),
    "not one that names another, though that one ended later": ([ended(0, 1, message=NAMES), ended(1, 1, after=4)], 1),
    "by position within a second": ([ended(1, 1), ended(0, 1)], 0),
    "of the newest attempt": ([ended(0, 1, after=50), ended(1, 1, attempt=1)], 1),
}


@pytest.mark.parametrize(("ends", "index"), CAUSES.values(), ids=CAUSES.keys())
def test_first_cause_is_named(ends: list[Ended], index: int) -> None:
    failure = first_failure(observed(job(status=recorded()), jobset=jobset(), ended=tuple(ends)))
    assert failure is not None
    assert failure.host == f"slice 0 host {index}"


def test_one_that_names_another_is_not_kept_for_the_first_since_its_message_is_long() -> None:
    one = ended(0, 1, message=NAMES)
    recorded_first = first_failure(observed(job(status=recorded()), jobset=jobset(), ended=(one,)))
    status = recorded(**stored({"failure": recorded_first}))
    failure = first_failure(observed(job(status=status), jobset=jobset(), ended=(one, ended(1, 1, after=4))))
    assert failure is not None
    assert failure.host == "slice 0 host 1"


def test_asked_to_stop_is_no_failure() -> None:
    ends = (ended(0, 143, was_asked=True), ended(1, 75))
    assert first_failure(observed(job(status=recorded()), jobset=jobset(), ended=ends)) is None


def test_asked_to_stop_counts_when_the_jobset_failed() -> None:
    ends = (ended(0, 143, was_asked=True),)
    failure = first_failure(observed(job(status=recorded()), jobset=jobset(outcome="Failed"), ended=ends))
    assert failure is not None
    assert failure.exit_code == 143


def test_recorded_failure_outlives_the_pods() -> None:
    seen = observed(job(status=recorded()), jobset=jobset(), ended=(ended(1, 77),))
    failure = first_failure(seen)
    again = first_failure(
        observed(job(status=recorded(**stored({"failure": failure}))), jobset=jobset(outcome="Failed"))
    )
    assert again == failure


def test_better_cause_replaces_the_recorded_one() -> None:
    first = first_failure(observed(job(status=recorded()), jobset=jobset(), ended=(ended(0, 1, after=5),)))
    status = recorded(**stored({"failure": first}))
    failure = first_failure(observed(job(status=status), jobset=jobset(), ended=(ended(0, 1, after=5), ended(1, 139))))
    assert failure is not None
    assert failure.exit_code == 139


def test_later_evidence_of_a_worse_cause_changes_nothing() -> None:
    first = first_failure(observed(job(status=recorded()), jobset=jobset(), ended=(ended(0, 1),)))
    status = recorded(**stored({"failure": first}))
    seen = observed(job(status=status), jobset=jobset(), ended=(ended(1, 134, after=1),))
    assert first_failure(seen) == first


def test_end_of_a_long_message_is_kept() -> None:
    seen = observed(job(status=recorded()), jobset=jobset(), ended=(ended(0, 1, message="x" * 5000 + "the cause"),))
    failure = first_failure(seen)
    assert failure is not None
    assert failure.message is not None
    assert failure.message.endswith("the cause")
    assert len(failure.message) == MESSAGE_LENGTH


def test_recorded_failure_is_evidence_with_its_place() -> None:
    end = ended(3, 1, slice_index=2, attempt=4, message="last lines")
    failure = first_failure(observed(job(status=recorded(bookedRestarts=4)), jobset=jobset(restarts=5), ended=(end,)))
    assert failure is not None
    seen = observed(job(status=recorded(**stored({"failure": failure}))))
    assert recorded_end(seen) == end


def test_recorded_failure_without_details_is_the_earliest() -> None:
    seen = observed(job(status=recorded(**stored({"failure": Failure(exit_code=1)}))))
    assert recorded_end(seen) == Ended(
        pod="", slice_index=0, host_index=0, attempt=0, exit_code=1, message="", finished_at=EARLIEST
    )


@pytest.mark.parametrize("failure", [None, Failure(pod="llama-w-0-0-abcde")], ids=["none", "without an exit code"])
def test_nothing_recorded_is_no_evidence(failure: Failure | None) -> None:
    assert recorded_end(observed(job(status=recorded(**stored({"failure": failure}))))) is None


def test_recorded_failure_of_a_later_attempt_stays_as_it_is() -> None:
    end = ended(0, 1, attempt=2)
    failure = Failure(pod=end.pod, exit_code=1, attempt=2, message="as it was recorded", time=end.finished_at)
    status = recorded(**stored({"failure": failure}))
    assert first_failure(observed(job(status=status), jobset=jobset(restarts=3), ended=(end,))) == failure


def test_node_is_named_in_status_and_message() -> None:
    seen = observed(job(status=recorded()), jobset=jobset(), ended=(ended(1, 77, node="gke-tpu-7"),))
    status = decide(seen, Settings()).status
    assert status.failure is not None
    assert status.failure.node == "gke-tpu-7"
    assert "slice 0 host 1 (pod llama-w-0-1-abcde on node gke-tpu-7), exit code 77" in (status.message or "")


@pytest.mark.parametrize(("restarts", "is_kept"), [(0, False), (1, True)], ids=["same attempt", "earlier attempt"])
def test_failure_of_the_attempt_that_resumes_is_dropped(restarts: int, is_kept: bool) -> None:
    """A suspension does not end the attempt: after the resume, `status.failure` would name an end from before it."""
    failure = {"host": "slice 0 host 1", "pod": "llama-w-0-1-abcde", "exitCode": 1, "attempt": 0}
    books = {"internal.bookedRestarts": restarts, "failure": failure}
    at_rest = job(status=recorded("Stopping", **books), suspend=True)
    decision = decide(observed(at_rest, jobset=jobset(suspended=True, restarts=restarts)), Settings())
    assert (decision.status.phase, decision.status.failure is not None) == ("Suspended", is_kept)
