"""An operator with nobody beside it: what the lists alone can do, and how it ends."""

from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess, grant_rights_in
from tests.scenes.control_plane.proxy import Proxy
from tests.scenes.control_plane.requests_made import jobsets_created
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import PATIENCE_SECONDS, wait_for
from tpujob_contract import kubernetes_names

pytestmark = pytest.mark.control_plane


def test_silent_watches_lose_nothing(installed: ControlPlane, jobs: Jobs, operator_directory: Path) -> None:
    """A watch that stays open and shows nothing more: lists tell what it does not."""
    settings = {"OPERATOR_RESYNC_SECONDS": "0.5", "OPERATOR_WATCH_NAMESPACES": jobs.namespace}
    with Proxy(installed).serving() as proxy:
        proxy.silent = True
        with OperatorProcess(installed, operator_directory, url=proxy.url, **settings) as operator:
            jobs.create("llama")
            jobs.run("llama")
            jobs.wait_phase("llama", "Running")
            jobs.finish("llama")
            jobs.wait_phase("llama", "Succeeded")
            wait_for("it to be noticed", lambda: operator.metric("tpujob_operator_watch_missed_objects") > 0)
    assert jobsets_created(installed.audit_log, jobs.namespace) == ["llama"]


def test_sigterm_ends_it_soon_and_well(installed: ControlPlane, jobs: Jobs, operator_directory: Path) -> None:
    operator = OperatorProcess(installed, operator_directory, OPERATOR_WATCH_NAMESPACES=jobs.namespace)
    with operator:
        jobs.create("llama")
        jobs.wait_phase("llama", "Starting")
        assert operator.process is not None
        operator.process._popen.terminate()
        assert operator.process._popen.wait(PATIENCE_SECONDS) == 0
    assert " ERROR " not in operator.log()
    assert operator.log().splitlines()[-1].endswith("Operator stops: asked to")


def test_a_policy_of_ours_is_put_right(installed: ControlPlane, jobs: Jobs, operator_directory: Path) -> None:
    """Nothing watches policies: the next look at the job, at a resync or after a start, puts them right."""
    settings = {"OPERATOR_RESYNC_SECONDS": "0.5", "OPERATOR_WATCH_NAMESPACES": jobs.namespace}
    policy = (
        f"/apis/networking.k8s.io/v1/namespaces/{jobs.namespace}/networkpolicies/{kubernetes_names.child_name('llama')}"
    )
    with OperatorProcess(installed, operator_directory, **settings) as operator:
        jobs.create("llama")
        jobs.run("llama")
        jobs.wait_phase("llama", "Running")
        wanted = jobs.api.get(policy)["spec"]
        jobs.api.patch(policy, {"spec": {"ingress": [{}], "egress": [{}], "policyTypes": ["Ingress", "Egress"]}})
        operator.stop()
        operator.start()
        operator.wait_until_ready()
        jobs.wait_corrected(policy, wanted)


def test_an_operator_of_one_namespace_lets_it_be_deleted(
    installed: ControlPlane, jobs: Jobs, operator_directory: Path
) -> None:
    """The Job controller keeps each deleted pod until its index has another one, which no such namespace gets."""
    account = grant_rights_in(installed, jobs.namespace)
    settings = {"OPERATOR_WATCH_NAMESPACES": jobs.namespace}
    with OperatorProcess(installed, operator_directory, account=account, **settings) as operator:
        jobs.create("llama", inPlaceRestarts=5)
        there = jobs.run("llama", bound=True)
        jobs.wait_phase("llama", "Running")
        jobs.end_namespace(there)
        assert "No right to read its Namespace" not in operator.log()
