"""The number of workers of a running job."""

from dataclasses import replace
from typing import Any

import pytest

from tests.operator.building import ended, host, job, jobset, observed, recorded
from tests.statuses import flat, grouped
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.checks.resize import wanted_workers
from tpujob_operator.observe.state import WorkerJob
from tpujob_resource.messages.conditions import Reason, Type, condition

SETTINGS = Settings(max_pods=10)
TRAINER: dict[str, Any] = {
    "task": "extract",
    "model": {"preset": "tiny"},
    "data": {"path": "/data"},
    "extract": {"layers": [1]},
}


def _seen(workers: int, of_job: int | None, *, phase: str = "Running", **fields: Any) -> Any:
    found = None if of_job is None else WorkerJob(name="llama-w-0", workers=of_job, resource_version="9")
    spec = job(
        accelerator="cpu:1x1",
        image=None,
        command=None,
        checkpointDir="gs://bucket/features",
        trainer=TRAINER,
        workers=workers,
        status=recorded(phase, startTime="2030-01-01T11:00:00Z"),
    )
    state = jobset(**{"hosts_per_slice": of_job or workers, **fields})
    return replace(observed(spec, jobset=state, hosts=(host(0), host(1))), worker_job=found)


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (_seen(2, None), None),
        (_seen(2, 2), None),
        (_seen(4, 2), 4),
        (_seen(1, 2), 1),
        (_seen(4, 2, suspended=True, phase="Suspended"), 4),
        (_seen(4, 2, outcome="Completed"), None),
        (_seen(4, 2, phase="Failed"), None),
        (_seen(11, 2), None),
    ],
    ids=["not read", "as it should be", "more", "fewer", "suspended", "finished", "failed before", "above the limit"],
)
def test_job_is_given_the_number_it_lacks(seen: Any, wanted: int | None) -> None:
    assert decide(seen, SETTINGS).workers == wanted


@pytest.mark.parametrize(
    "seen",
    [_seen(4, 2, outcome="Completed"), _seen(4, 2, phase="Failed"), replace(_seen(4, 2), jobset=None)],
    ids=["finished", "failed before", "gone"],
)
def test_job_that_is_over_is_asked_for_no_other_number(seen: Any) -> None:
    assert wanted_workers(seen, SETTINGS) is None


def test_number_above_the_limit_is_named_and_the_job_goes_on() -> None:
    decision = decide(_seen(11, 2), SETTINGS)
    assert decision.status.phase == "Running"
    blocked = condition(decision.status, Type.BLOCKED)
    assert blocked is not None
    assert (blocked.status, blocked.reason) == ("True", Reason.REJECTED)
    assert "spec.workers: makes 11 pods" in blocked.message


def test_job_that_ends_is_given_no_other_number() -> None:
    failing = replace(_seen(4, 2), ended=(ended(0, 78),))
    assert (decide(failing, SETTINGS).status.phase, decide(failing, SETTINGS).workers) == ("Failed", None)


def test_new_incarnation_has_its_number_from_the_start() -> None:
    seen = _seen(4, 2, suspended=True, phase="Suspended")
    edited = grouped({**flat(seen.status.as_stored()), "internal.specHash": "another"})
    manifest = {**seen.manifest, "status": edited, "metadata": {**seen.manifest["metadata"], "generation": 2}}
    decision = decide(replace(seen, manifest=manifest), SETTINGS)
    assert (decision.status.incarnation, decision.workers) == (2, None)
