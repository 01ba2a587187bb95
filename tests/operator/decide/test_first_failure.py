"""Whose failure is shown."""

import pytest

from tests.operator.building import ended, job, jobset, observed, recorded
from tpujob_operator.decide.first_failure import MESSAGE_LENGTH, first_failure
from tpujob_operator.observe.state import Ended

CAUSES = {
    # name: (ends, index of the host to be named)
    "the only one": ([ended(1, 1)], 1),
    "the earlier one": ([ended(0, 134, after=2), ended(1, 1, after=1)], 1),
    "the fatal one, however late": ([ended(0, 1), ended(1, 78, after=9)], 1),
    "the earlier of two fatal ones": ([ended(0, 77, after=1), ended(1, 76)], 1),
    "not one that was asked to stop": ([ended(0, 143, was_asked=True), ended(1, 1, after=2)], 1),
    "not one that stopped by contract": ([ended(0, 75), ended(1, 137, after=3)], 1),
    "the one with a code of its own within a second": ([ended(0, 1), ended(1, 139)], 1),
    "the fatal one, although it was asked to stop": ([ended(0, 1), ended(1, 78, was_asked=True)], 1),
    "by position within a second": ([ended(1, 1), ended(0, 1)], 0),
    "of the newest attempt": ([ended(0, 1, after=50), ended(1, 1, attempt=1)], 1),
}


@pytest.mark.parametrize(("ends", "index"), CAUSES.values(), ids=CAUSES.keys())
def test_first_cause_is_named(ends: list[Ended], index: int) -> None:
    failure = first_failure(observed(job(status=recorded()), jobset=jobset(), ended=tuple(ends)))
    assert failure is not None
    assert failure["host"] == f"slice 0 host {index}"


def test_asked_to_stop_is_no_failure() -> None:
    ends = (ended(0, 143, was_asked=True), ended(1, 75))
    assert first_failure(observed(job(status=recorded()), jobset=jobset(), ended=ends)) is None


def test_asked_to_stop_counts_when_the_jobset_failed() -> None:
    ends = (ended(0, 143, was_asked=True),)
    failure = first_failure(observed(job(status=recorded()), jobset=jobset(outcome="Failed"), ended=ends))
    assert failure is not None
    assert failure["exitCode"] == 143


def test_recorded_failure_outlives_the_pods() -> None:
    seen = observed(job(status=recorded()), jobset=jobset(), ended=(ended(1, 77),))
    failure = first_failure(seen)
    again = first_failure(observed(job(status=recorded(failure=failure)), jobset=jobset(outcome="Failed")))
    assert again == failure


def test_better_cause_replaces_the_recorded_one() -> None:
    first = first_failure(observed(job(status=recorded()), jobset=jobset(), ended=(ended(0, 1, after=5),)))
    status = recorded(failure=first)
    failure = first_failure(observed(job(status=status), jobset=jobset(), ended=(ended(0, 1, after=5), ended(1, 139))))
    assert failure is not None
    assert failure["exitCode"] == 139


def test_later_evidence_of_a_worse_cause_changes_nothing() -> None:
    first = first_failure(observed(job(status=recorded()), jobset=jobset(), ended=(ended(0, 1),)))
    status = recorded(failure=first)
    seen = observed(job(status=status), jobset=jobset(), ended=(ended(1, 134, after=1),))
    assert first_failure(seen) == first


def test_end_of_a_long_message_is_kept() -> None:
    seen = observed(job(status=recorded()), jobset=jobset(), ended=(ended(0, 1, message="x" * 5000 + "the cause"),))
    failure = first_failure(seen)
    assert failure is not None
    assert failure["message"].endswith("the cause")
    assert len(failure["message"]) == MESSAGE_LENGTH
