"""The operator has the rights that it uses, and no others: what the audit log says after all other tests."""

import os

import pytest

from tests.e2e.__main__ import COMPLETE
from tests.e2e.surroundings import Surroundings
from tools.localcluster import audit, background

pytestmark = [pytest.mark.e2e, pytest.mark.core, pytest.mark.afterwards]

# Granted for what no test here does.
SELDOM = {
    ("patch", "networking.k8s.io", "networkpolicies"),  # after somebody else has changed ours
    ("get", "", "nodes"),  # after a failure
    ("get", "", "namespaces"),  # after the end of a pod that a Job replaces
    ("list", "", "nodes"),  # while a job has fewer slices than it asks for
    ("get", "batch", "jobs"),  # after an edit of spec.workers
    ("patch", "batch", "jobs"),  # the same
    ("get", "kueue.x-k8s.io", "clusterqueues"),  # while a job with a queue has fewer slices than it asks for
    ("create", "kueue.x-k8s.io", "workloads"),  # of a job that MultiKueue runs
    ("delete", "kueue.x-k8s.io", "workloads"),  # the same
    ("get", "kueue.x-k8s.io", "workloads"),  # the same
    ("patch", "kueue.x-k8s.io", "workloads"),  # the same
    ("get", "scheduling.k8s.io", "priorityclasses"),  # the same
    ("list", "kueue.x-k8s.io", "workloads"),  # while a job waits in a queue
    ("get", "visibility.kueue.x-k8s.io", "localqueues/pendingworkloads"),  # the same
    ("delete", "jobset.x-k8s.io", "jobsets"),  # a changed spec makes a new JobSet
    ("update", "tpujob.dev", "tputrainingjobs/finalizers"),  # where OwnerReferencesPermissionEnforcement is on
}


@pytest.fixture
def surroundings(surroundings: Surroundings) -> Surroundings:
    if not surroundings.is_own:
        pytest.skip("the audit log of a cluster that was brought cannot be read")
    return surroundings


def test_operator_asks_for_nothing_it_may_not_do(surroundings: Surroundings) -> None:
    assert used(surroundings) - granted(surroundings) == set()


@pytest.mark.skipif(COMPLETE not in os.environ, reason="tells only after all tests: `make e2e` without a choice")
def test_operator_may_do_nothing_it_does_not_ask_for(surroundings: Surroundings) -> None:
    assert granted(surroundings) - used(surroundings) - SELDOM == set()


def used(surroundings: Surroundings) -> set[tuple[str, str, str]]:
    user = f"system:serviceaccount:{surroundings.operator_namespace}:{surroundings.operator_account}"
    calls = audit.calls(background.DIRECTORY / "audit.log", user)
    return {(call.verb, call.api_group, call.resource) for call in calls}


def granted(surroundings: Surroundings) -> set[tuple[str, str, str]]:
    name, namespace = surroundings.operator_account, surroundings.operator_namespace
    roles = [surroundings.client.get(kind, name, namespace) for kind in ("clusterrole", "role")]
    return {
        (verb, group, resource)
        for role in roles
        if role is not None
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
