"""Preconditions hold and errors have their class, on the real API server; late and stale decisions do no harm."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_kube_config

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tools.localcluster import pods
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import PATIENCE_SECONDS, wait_for
from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.apply import act
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.verdict import Step
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import JOBS, JOBSETS, PODS, Storage, Target
from tpujob_operator.kube.requests import Requests
from tpujob_operator.observe.cache import Cache
from tpujob_operator.observe.gather import Gatherer
from tpujob_operator.observe.report_poller import ReportPoller
from tpujob_operator.observe.terminations import TerminationCache

pytestmark = pytest.mark.control_plane

SETTINGS = Settings()
QUEUED = {"status": {"phase": "Queued"}}


async def connect(kubeconfig: Path) -> Storage:
    configuration = Configuration()
    await load_kube_config(config_file=str(kubeconfig), client_configuration=configuration, persist_config=False)
    return Storage(Requests(ApiClient(configuration)))


@pytest.fixture
async def store(installed: ControlPlane, operator_directory: Path) -> AsyncIterator[Storage]:
    """The operator's storage, with the operator's rights."""
    async with await connect(OperatorProcess(installed, operator_directory).kubeconfig) as connected:
        yield connected


@pytest.fixture
async def gatherer(store: Storage) -> AsyncIterator[Gatherer]:
    async with aiohttp.ClientSession() as session:
        evidence = TerminationCache()
        cache = Cache(evidence, lambda _: None)
        yield Gatherer(
            store, cache, evidence, ReportPoller(session, news=lambda _: None, add=lambda *_: None), SETTINGS
        )


async def one_pass(store: Storage, gatherer: Gatherer, jobs: Jobs, name: str) -> Step | None:
    """One look, decision and act; again after a conflict, for the JobSet controller writes too."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            seen = await gatherer.gather((jobs.namespace, name))
            assert seen is not None
            decision = decide(seen[0], SETTINGS)
            with contextlib.suppress(errors.Conflict):
                await act(store, *seen, decision)
                return decision.step


async def resume(store: Storage, namespace: str, name: str) -> dict[str, Any]:
    """The JobSet after its resumption; again after a conflict."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            jobset = await store.get(JOBSETS, namespace, name)
            assert jobset is not None
            with contextlib.suppress(errors.Conflict):
                return await store.patch(JOBSETS, Target.unchanged(jobset), {"spec": {"suspend": False}})


async def manifest_of(gatherer: Gatherer, jobs: Jobs, name: str) -> dict[str, Any]:
    seen = await gatherer.gather((jobs.namespace, name))
    assert seen is not None
    manifest = decide(seen[0], SETTINGS).manifest
    assert manifest is not None
    return manifest


async def test_absent_is_none(store: Storage, jobs: Jobs) -> None:
    assert await store.get(JOBS, jobs.namespace, "absent") is None
    assert await store.get(JOBSETS, jobs.namespace, "absent") is None
    assert await store.list(PODS, jobs.namespace, labels="tpujob.dev/job-name=absent") == []


async def test_second_create_finds_the_name_taken(store: Storage, gatherer: Gatherer, jobs: Jobs) -> None:
    jobs.create("llama")
    manifest = await manifest_of(gatherer, jobs, "llama")
    created = await store.create(JOBSETS, manifest)
    with pytest.raises(errors.AlreadyExists, match=r"jobsets .*/llama"):
        await store.create(JOBSETS, manifest)
    found = await store.get(JOBSETS, jobs.namespace, "llama")
    assert found is not None
    assert found["metadata"]["uid"] == created["metadata"]["uid"]


async def test_status_of_an_earlier_job_of_the_name_is_refused(store: Storage, jobs: Jobs) -> None:
    earlier = jobs.create("llama")
    jobs.api.delete(f"{jobs.path}/llama")
    jobs.create("llama")
    with pytest.raises(errors.Conflict):
        await store.patch(JOBS, Target.unchanged(earlier), QUEUED, subresource="status")
    assert "status" not in jobs.get("llama")


async def test_stale_or_foreign_jobset_is_left_alone(store: Storage, gatherer: Gatherer, jobs: Jobs) -> None:
    jobs.create("llama")
    created = await store.create(JOBSETS, await manifest_of(gatherer, jobs, "llama"))
    resumed = await resume(store, jobs.namespace, "llama")
    assert resumed["spec"]["suspend"] is False
    with pytest.raises(errors.Conflict):
        await store.patch(JOBSETS, Target.unchanged(created), {"spec": {"suspend": True}})
    with pytest.raises(errors.Conflict):
        await store.delete(JOBSETS, replace(Target.same(created), uid="00000000-0000-0000-0000-000000000000"))
    await store.delete(JOBSETS, Target.same(resumed))
    wait_for("the JobSet to go", lambda: jobs.jobset("llama") is None)
    await store.delete(JOBSETS, Target.same(resumed))


async def test_silence_is_unavailable(installed: ControlPlane, operator_directory: Path) -> None:
    kubeconfig = OperatorProcess(installed, operator_directory, url="http://127.0.0.1:1").kubeconfig
    async with await connect(kubeconfig) as store:
        with pytest.raises(errors.Unavailable, match="no answer"):
            await store.list(JOBS, None)


async def test_stale_decision_does_nothing(store: Storage, gatherer: Gatherer, jobs: Jobs) -> None:
    """A second operator that decided on an older state, and acts on it now."""
    jobs.create("llama")
    seen = await gatherer.gather((jobs.namespace, "llama"))
    assert seen is not None
    jobs.patch("llama", suspend=True)
    with pytest.raises(errors.Conflict):
        await act(store, *seen, decide(seen[0], SETTINGS))
    assert jobs.jobset("llama") is None


async def test_two_operators_make_one_jobset_run(store: Storage, gatherer: Gatherer, jobs: Jobs) -> None:
    """One stops between its decision to create and the create; the job runs, ends, and is cleaned up meanwhile."""
    jobs.create("llama", ttlSecondsAfterFinished=0)
    late = await manifest_of(gatherer, jobs, "llama")
    for expected in (Step.CREATE, Step.RESUME):
        assert await one_pass(store, gatherer, jobs, "llama") is expected
    for pod in jobs.wait_pods("llama"):
        pods.set_succeeded(jobs.api, pod)
    wait_for("the JobSet to complete", lambda: (jobs.jobset("llama") or {}).get("status", {}).get("terminalState"))
    assert await one_pass(store, gatherer, jobs, "llama") is None
    assert jobs.get("llama")["status"]["phase"] == "Succeeded"
    assert await one_pass(store, gatherer, jobs, "llama") is Step.DELETE
    wait_for("the JobSet to go", lambda: jobs.jobset("llama") is None)

    await store.create(JOBSETS, late)

    assert await one_pass(store, gatherer, jobs, "llama") is Step.DELETE
    assert jobs.get("llama")["status"]["phase"] == "Succeeded"
    wait_for("the late JobSet to go", lambda: jobs.jobset("llama") is None)
    ran = jobs.api.items(f"/api/v1/namespaces/{jobs.namespace}/pods")
    assert all(pod["status"]["phase"] == "Succeeded" for pod in ran)
