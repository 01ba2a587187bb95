"""The account of restarts in the same pods, as it is read from pods and reports, and kept from the watch."""

from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import BOTH, JOBSET_UID, NOW, host, pod, terminated
from tpujob_contract.reports import in_place as wire
from tpujob_operator.observe.in_place import account_from_json
from tpujob_operator.observe.report import progress_from_report
from tpujob_operator.observe.terminations import TerminationCache
from tpujob_resource.models.status import Status

TWO: wire.Account = {"counts": {wire.CRASH: 2}}
JUDGED = {"internal.job_set_uid": JOBSET_UID, "internal.booked_restarts": 2}


@pytest.mark.parametrize("given", [None, {"counts": {"crash": "many"}}, {"counts": {"crash": 1001}}])
def test_an_account_that_makes_no_sense_counts_nothing(given: Any) -> None:
    assert account_from_json(given) is None
    assert progress_from_report({"phase": "training", "in_place": given}).in_place is None


def test_values_of_an_end_that_make_no_sense_are_unknown() -> None:
    found = account_from_json({**TWO, "last": {"cause": "crash", "at": "x", "process": -1, "code": 137}})
    assert found is not None
    assert found.last is not None
    assert (found.last.at, found.last.process, found.last.exit_code) == (None, None, 137)


def test_accounts_of_pods_that_have_ended_are_kept_from_the_watch() -> None:
    kept = TerminationCache()
    for index in (0, 1):
        message = f"exit code 1, crashed\n{wire.line(TWO)}"
        kept.note(("team", "llama"), pod(index, state=terminated(1, message=message), phase="Failed"))
    found = kept.accounts(("team", "llama"), JOBSET_UID)
    assert [(each.lead, each.total) for each in found] == [("llama-w-0-0-abcde", 2), ("", 2)]
    (first, _) = kept.of(("team", "llama"), JOBSET_UID)
    assert first.message == "exit code 1, crashed"
    kept.note_job(("team", "llama"), Status().updated(JUDGED), deleted=False)
    assert kept.accounts(("team", "llama"), JOBSET_UID) == ()


def test_an_end_after_which_all_went_on_with_another_pod_explains_no_later_one() -> None:
    kept = TerminationCache()
    key = ("team", "llama")
    kept.note(key, pod(1, state=terminated(137), phase="Failed"))
    instead = (host(0), host(1, pod="llama-w-0-1-second"))
    assert not kept.note_replaced(key, JOBSET_UID, BOTH, NOW + timedelta(seconds=1)), "its pod is the last one there"
    assert not kept.note_replaced(key, JOBSET_UID, instead, NOW), "they have not started again since"
    assert kept.note_replaced(key, JOBSET_UID, instead, NOW + timedelta(seconds=1))
    assert (kept.of(key, JOBSET_UID), len(kept.replaced(key, JOBSET_UID))) == ((), 1)
    kept.note(key, pod(1, state=terminated(137), phase="Failed"))
    assert kept.of(key, JOBSET_UID) == ()
    kept.forget_stopped(key, JOBSET_UID, 0)
    assert kept.replaced(key, JOBSET_UID) == ()
