"""Whatever the API server's objects hold, each look at a job ends in a decision that can be stored."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.operator.building import JOB_UID, JOBSET_UID, NOW, job, pod, recorded, status_of
from tests.operator.observe.test_hostile_pods import labels, pods, text, times
from tests.statuses import grouped
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import decide
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import Storage
from tpujob_operator.kube.requests import Object, Resource
from tpujob_operator.observe import gather
from tpujob_operator.observe.cache import Cache
from tpujob_operator.observe.gather import Gatherer
from tpujob_operator.observe.report_poller import ReportPoller
from tpujob_operator.observe.state import Observed
from tpujob_operator.observe.terminations import TerminationCache
from tpujob_resource.models.phases import TERMINAL, Phase
from tpujob_resource.models.status import Status
from tpujob_resource.models.times import format_time

KEY = ("team", "llama")
names = st.sampled_from(["llama", "w", "llama-w-0", "other", ""])
uids = st.sampled_from([JOB_UID, JOBSET_UID, "other"])
counts = st.integers(0, 2**31 - 1) | st.sampled_from([0, 1, 2])
owners = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["TpuTrainingJob", "Job", "odd"]),
            "name": names,
            "uid": uids,
        },
        optional={"controller": st.booleans()},
    ),
    max_size=2,
)


OURS = [{"kind": "TpuTrainingJob", "name": "llama", "uid": JOB_UID, "controller": True}]


def sometimes(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object that may lack each of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def metadata(name: str) -> st.SearchStrategy[dict[str, Any]]:
    fixed = {
        "name": st.just(name),
        "namespace": st.just("team"),
        "uid": st.just(JOBSET_UID) | uids,
        "resourceVersion": st.integers(1, 9).map(str),
        "creationTimestamp": st.just(format_time(NOW)),
    }
    optional = {
        "labels": labels | st.just({"tpujob.dev/job-name": "llama", "tpujob.dev/incarnation": "1"}),
        "annotations": st.dictionaries(text, text, max_size=2),
        "ownerReferences": st.just(OURS) | owners,
        "deletionTimestamp": times.filter(bool),
    }
    return st.fixed_dictionaries(fixed, optional=optional)


SHAPE = [
    {
        "name": "w",
        "replicas": 1,
        "template": {"spec": {"parallelism": 2, "template": {"spec": {"containers": [{"name": "main"}]}}}},
    }
]
jobset_conditions = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["Completed", "Failed", "Suspended"]), "status": st.sampled_from(["True", "False"])},
        optional={"reason": text, "message": text, "lastTransitionTime": times.filter(bool)},
    ),
    max_size=3,
)
jobs_of_a_jobset = st.lists(
    st.fixed_dictionaries(
        {"name": names, "template": st.fixed_dictionaries({"spec": sometimes(parallelism=counts)})},
        optional={"replicas": counts},
    ),
    max_size=2,
)
jobsets = st.fixed_dictionaries(
    {
        "metadata": metadata("llama"),
        "spec": sometimes(suspend=st.booleans(), replicatedJobs=st.just(SHAPE) | jobs_of_a_jobset),
    },
    optional={"status": sometimes(conditions=jobset_conditions, restarts=counts)},
)
events = st.lists(
    st.fixed_dictionaries(
        {"involvedObject": sometimes(kind=st.sampled_from(["Job", "JobSet"]), name=names, uid=uids)},
        optional={
            "reason": st.sampled_from(["FailedScaleUp", "TriggeredScaleUp", "FailedCreate"]) | text,
            "message": st.none() | text,
            "lastTimestamp": times,
            "eventTime": times,
            "series": st.none() | sometimes(lastObservedTime=times),
        },
    ),
    max_size=3,
)
nodes = st.none() | st.fixed_dictionaries(
    {"metadata": metadata("node")},
    optional={
        "spec": sometimes(taints=st.lists(st.fixed_dictionaries({"key": text, "effect": text}), max_size=2)),
        "status": sometimes(
            conditions=st.lists(
                st.fixed_dictionaries(
                    {"type": st.just("Ready"), "status": st.sampled_from(["True", "False"])}, optional={"reason": text}
                ),
                max_size=1,
            ),
            allocatable=st.dictionaries(st.sampled_from(["cpu", "pods", "google.com/tpu"]), counts | text, max_size=3),
        ),
    },
)
policies = st.none() | st.fixed_dictionaries(
    {"metadata": metadata("llama-tpujob"), "spec": sometimes(podSelector=st.just({}), ingress=st.just([]))}
)
worker_jobs = st.none() | st.fixed_dictionaries(
    {"metadata": metadata("llama-w-0"), "spec": sometimes(parallelism=counts)}
)
workload_conditions = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["QuotaReserved", "Admitted", "Evicted"]),
            "status": st.sampled_from(["True", "False"]),
        },
        optional={"reason": st.sampled_from(["Preempted", "Inadmissible"]) | text, "message": text},
    ),
    max_size=3,
)
workloads = st.none() | st.lists(
    st.fixed_dictionaries(
        {"metadata": metadata("jobset-llama")},
        optional={
            "spec": sometimes(active=st.booleans(), queueName=names),
            "status": sometimes(conditions=workload_conditions),
        },
    ),
    max_size=2,
)
pending = st.none() | st.lists(
    st.fixed_dictionaries(
        {"metadata": metadata("jobset-llama"), "positionInClusterQueue": counts, "positionInLocalQueue": counts}
    ),
    max_size=2,
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "accelerator": text | st.just("v4-8"),
        "queue": text | st.integers(),
        "suspend": st.booleans() | text,
        "workers": st.integers(-1, 9) | text,
        "slices": st.integers(-1, 9) | text,
        "minSlices": st.integers(-1, 9) | text,
        "shrinkAfterSeconds": st.integers() | text,
        "growAfterSeconds": st.integers() | text,
        "trainer": st.dictionaries(text, st.integers(), max_size=1) | text,
        "restarts": sometimes(crashes=st.integers() | text),
        "activeDeadlineSeconds": st.integers() | text,
        "ttlSecondsAfterFinished": st.integers() | text,
        "retry": st.integers(0, 3) | text,
    },
)
statuses = st.none() | st.builds(
    lambda phase, fields: {**recorded(phase), **fields},
    st.sampled_from([*Phase, "Odd"]),
    sometimes(
        jobSet=names,
        jobSetUid=uids | st.integers(),
        hosts=counts | text,
        startTime=times | text,
        stepTime=times,
        current=counts | text,
        changedTime=times,
        missingTime=times | text,
        nextGrowthTime=times,
        growthsWithoutProgress=counts | text,
        restartTime=times,
        restartsWithoutProgress=counts,
        bookedRestarts=counts | text,
        conditions=st.lists(sometimes(type=text, status=text, reason=text), max_size=2),
        failure=sometimes(pod=text, exitCode=st.integers(0, 255), time=times),
        disruption=sometimes(attempt=counts, exitCode=st.integers(0, 255), askedAt=times, marked=st.booleans()),
    ),
)


ANSWERS = {
    "tputrainingjobs": "job",
    "jobsets": "jobset",
    "namespaces": "namespace",
    "nodes": "node",
    "jobs": "worker_job",
    "services": "policy",
    "networkpolicies": "policy",
}
"""What is drawn for an object of each kind that is read by its name."""


class Answers:
    """An API server that answers with what it was given."""

    def __init__(self, **found: Any) -> None:
        self._found = {**found, "namespace": {"metadata": {"name": "team"}}}

    async def get(self, resource: Resource, *_: str | None, **__: object) -> Object | None:
        if resource.plural == "localqueues":
            return None if self._found["pending"] is None else {"items": self._found["pending"]}
        return cast("Object | None", self._found[ANSWERS[resource.plural]])

    async def list(self, resource: Resource, *_: str | None, **__: str) -> list[Object]:
        if resource.plural == "nodes":
            return [] if self._found["node"] is None else [self._found["node"]]
        if self._found[resource.plural] is None:
            raise errors.NotServed(f"list {resource.plural}", 404, "404 page not found")
        return cast("list[Object]", self._found[resource.plural])


class Silence:
    """Reports that never come."""

    def follow(self, *_: object, **__: object) -> None:
        return None

    def forget(self, *_: object) -> None:
        return None


def make_ours(manifest: dict[str, Any], found: dict[str, Any]) -> None:
    """Changes a drawn job, its JobSet and its pods so far that each belongs to the other."""
    if (manifest.get("status") or {}).get("phase") in (None, *TERMINAL):
        manifest["status"] = recorded()
    manifest["status"] |= grouped({"jobSet": "llama", "jobSetUid": JOBSET_UID})
    found["jobset"]["metadata"] |= {"uid": JOBSET_UID, "ownerReferences": OURS}
    found["jobset"]["spec"]["replicatedJobs"] = SHAPE
    for index, each in enumerate(found["pods"]):
        each["metadata"]["labels"] |= pod(index % 2)["metadata"]["labels"]


async def look(answers: Answers, found: dict[str, Any], *, fresh: bool) -> Observed | None:
    """What was seen of one job, after a decision about it was made and could be stored."""
    evidence = TerminationCache()
    cache = Cache(evidence, lambda _: None)
    gatherer = Gatherer(
        cast("Storage", answers),
        cache,
        evidence,
        cast("ReportPoller", Silence()),
        Settings(),
    )
    if not fresh:
        gatherer.is_current = lambda _: True
        cache.jobs.changed(found["job"], deleted=False)
        if found["jobset"] is not None:
            cache.jobsets.changed(found["jobset"], deleted=False)
        for pod in found["pods"]:
            cache.pods.changed(pod, deleted=False)
    # What is missing is missing for long enough to be asked about.
    with patch.object(gather, "OVERDUE_SECONDS", 0.0):
        seen = await gatherer.gather(KEY, fresh=fresh)
    if seen is None:
        return None
    decision = decide(seen[0], Settings())
    written = json.loads(json.dumps(status_of(decision), allow_nan=False).encode())
    Status.model_validate({key: written[key] for key in decision.patch if key in written})
    return seen[0]


LOOKS = 200


def test_any_answer_leads_to_a_decision() -> None:
    saw_pods: list[bool] = []

    @settings(max_examples=LOOKS, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
    @given(
        spec=specs,
        status=statuses,
        jobset=jobsets,
        pods=st.lists(pods(), min_size=1, max_size=4),
        answers=st.fixed_dictionaries(
            {
                "events": events,
                "node": nodes,
                "worker_job": worker_jobs,
                "policy": policies,
                "workloads": workloads,
                "pending": pending,
            }
        ),
        whose=st.sampled_from(["ours", "ours", "anybody's", "nobody's"]),
        fresh=st.booleans(),
    )
    def play(
        spec: dict[str, Any],
        status: dict[str, Any] | None,
        jobset: dict[str, Any],
        pods: list[dict[str, Any]],
        answers: dict[str, Any],
        whose: str,
        *,
        fresh: bool,
    ) -> None:
        manifest = job(status=status)
        manifest["spec"] |= spec
        found = {**answers, "job": manifest, "jobset": None if whose == "nobody's" else jobset, "pods": pods}
        for each in pods:
            each["metadata"] |= {"resourceVersion": "3"}
        if whose == "ours":
            make_ours(manifest, found)
        seen = asyncio.run(look(Answers(**found), found, fresh=fresh))
        saw_pods.append(seen is not None and bool(seen.hosts or seen.ended or seen.pods_left))

    play()
    assert sum(saw_pods) >= LOOKS / 2, "most looks end before pods are read"
