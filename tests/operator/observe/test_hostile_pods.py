"""Whatever stands in pods, reports and termination messages, a decision comes out of it, and a status to be stored."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.operator.building import BOTH, JOBSET_UID, NOW, job, jobset, observed, pod, recorded, status_of, terminated
from tpujob_contract.reports.report import FIELDS as REPORT_FIELDS
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import decide
from tpujob_operator.observe.from_objects import ended_from_pod
from tpujob_operator.observe.pod_state import pod_state
from tpujob_operator.observe.report import Progress, final_report, progress_from_report
from tpujob_operator.observe.state import JobSetState
from tpujob_operator.observe.terminations import TerminationCache
from tpujob_operator.observe.untrusted import parse_json
from tpujob_resource.models.times import format_time

KEY = ("team", "llama")
SETTINGS = Settings(network_policies=False)


def relabelled(**labels: str) -> dict[str, Any]:
    """A pod that failed, with other values of these labels, named by what follows the slash."""
    changed = pod(state=terminated(1), phase="Failed")
    names = {key.rpartition("/")[2].replace("-", "_"): key for key in changed["metadata"]["labels"]}
    changed["metadata"]["labels"] |= {names[name]: value for name, value in labels.items()}
    return changed


def owned_by(*owners: dict[str, Any]) -> dict[str, Any]:
    """A pod that failed, with these owners."""
    changed = pod(state=terminated(1), phase="Failed")
    changed["metadata"]["ownerReferences"] = list(owners)
    return changed


FOREIGN_PODS = {
    "index that is no number": relabelled(job_index="abc"),
    "index in other digits": relabelled(job_index="\N{ARABIC-INDIC DIGIT ZERO}"),
    "attempt beyond counting": relabelled(restart_attempt="9" * 60),
    "host beyond the slice": relabelled(job_completion_index="2"),
    "another JobSet's uid": relabelled(jobset_uid="other"),
    "another JobSet's name": relabelled(jobset_name="other"),
    "no owner": owned_by(),
    "owned by another Job": owned_by({"kind": "Job", "name": "other-w-0", "controller": True}),
    "owned by a ReplicaSet": owned_by({"kind": "ReplicaSet", "name": "llama-w-0", "controller": True}),
    "not controlled by its owner": owned_by({"kind": "Job", "name": "llama-w-0"}),
}


def is_host_of(found: dict[str, Any], state: JobSetState) -> bool:
    """What a pass counts as a host of the job."""
    seen = pod_state(found)
    return seen is not None and seen.is_of(state)


@pytest.mark.parametrize("foreign", FOREIGN_PODS.values(), ids=FOREIGN_PODS.keys())
def test_only_pods_of_our_jobset_count(foreign: dict[str, Any]) -> None:
    evidence = TerminationCache()
    evidence.note_all(KEY, [foreign, pod(1, state=terminated(2), phase="Failed")])
    assert not is_host_of(foreign, jobset())
    assert 2 in [end.exit_code for end in evidence.of(KEY, JOBSET_UID)]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, '"\\ud800"', "nonsense"])
def test_broken_json_is_no_report(text: str) -> None:
    assert final_report(f'report: {{"phase": {text}}}') in (None, Progress(phase="\N{REPLACEMENT CHARACTER}"))


def test_any_grace_period_can_be_subtracted() -> None:
    end = ended_from_pod(pod(state=terminated(1), deleted_after=0, grace=30))
    huge = pod(state=terminated(1))
    huge["metadata"] |= {"deletionTimestamp": format_time(NOW), "deletionGracePeriodSeconds": 2**62}
    assert end is not None
    assert ended_from_pod(huge) is not None


# Anything that the API server lets into a pod, and anything that a process may say.

text = st.text(max_size=40)
labels = st.dictionaries(
    st.sampled_from(list(pod()["metadata"]["labels"])), st.sampled_from(["", "0", "1", "7", "abc", "-1", "9" * 40])
)
numbers = st.integers(-(2**31), 2**31 - 1)
values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | text, lambda inner: st.lists(inner), max_leaves=4
)
FIELDS = (
    "phase",
    "step",
    "steps",
    "loss",
    "tokens_per_second",
    "committed_step",
    "committed_time",
    "message",
    "checkpoint_failing_since",
    "checkpoint_message",
    "data_slow_message",
    "data_wait_fraction",
    "goodput",
)
reports = st.dictionaries(st.sampled_from(FIELDS), values | st.dictionaries(text, values)).map(json.dumps)
messages = text | reports.map("last lines\nreport: {}".format)
times = st.none() | st.datetimes(
    NOW.replace(tzinfo=None) - timedelta(days=9), NOW.replace(tzinfo=None) + timedelta(9)
).map(lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ"))
states = st.one_of(
    st.just({}),
    st.just({"running": {}}),
    st.builds(lambda reason, message: {"waiting": {"reason": reason, "message": message}}, text, text),
    st.builds(
        lambda code, message, at: {"terminated": {"exitCode": code, "message": message, "finishedAt": at}},
        numbers | st.sampled_from([0, 1, 75, 76, 137]),
        messages,
        times,
    ),
)
conditions = st.lists(
    st.builds(
        lambda kind, status, reason, at: {
            "type": kind,
            "status": status,
            "reason": reason,
            "lastTransitionTime": at,
            "message": reason,
        },
        st.sampled_from(["Ready", "PodScheduled", "DisruptionTarget", "odd"]),
        st.sampled_from(["True", "False", "Unknown"]),
        st.sampled_from(["Unschedulable", "", "odd"]),
        times,
    ),
    max_size=4,
)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    made = pod(draw(st.integers(0, 3)), state=draw(states), attempt=draw(st.integers(0, 2)))
    if draw(st.booleans()):
        made["metadata"]["labels"] |= draw(labels)
    if (deleted_at := draw(times)) is not None:
        made["metadata"] |= {"deletionTimestamp": deleted_at, "deletionGracePeriodSeconds": draw(st.integers(0, 2**63))}
    made["metadata"]["uid"] = draw(st.sampled_from("abcdef"))
    made["status"] |= {
        "phase": draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])),
        "conditions": draw(conditions),
        "reason": draw(text),
        "initContainerStatuses": [{"name": "launcher", "state": draw(states)}],
    }
    return made


def progress(body: str) -> Progress | None:
    try:
        return progress_from_report(parse_json(body))
    except ValueError:
        return None


OF_PROGRESS = {
    "step",
    "steps",
    "progress.loss",
    "progress.tokensPerSecond",
    "lastCheckpointStep",
    "lastCheckpointTime",
    "progress.goodput",
    "progress.units",
}
OF_PROGRESS |= {
    "progress.stragglerMessage",
    "progress.preflightMessage",
    "progress.dataWaitFraction",
    "restarts.inPlaceCause",
    "restarts.inThesePods",
}
OF_PROGRESS |= {"conditions"}


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(body=st.dictionaries(st.sampled_from(REPORT_FIELDS), values | numbers | st.dictionaries(text, numbers)))
def test_who_has_the_address_of_a_report_changes_progress_alone(body: dict[str, Any]) -> None:
    """No phase, count of restarts, JobSet or number of workers."""
    running = recorded("Running", startTime=format_time(NOW), stepTime=format_time(NOW), step=50, lastCheckpointStep=40)
    honest = observed(job(status=running), jobset=jobset(), hosts=BOTH)
    told = decide(replace(honest, progress=progress(json.dumps(body))), SETTINGS)
    untold = decide(honest, SETTINGS)
    assert (
        (told.step, told.workers, told.manifest) == (untold.step, untold.workers, untold.manifest) == (None, None, None)
    )
    before, after = status_of(untold), status_of(told)
    assert {key for key in before | after if before.get(key) != after.get(key)} <= OF_PROGRESS
