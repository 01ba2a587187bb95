"""The operator has the rights that it uses, and no others: what the audit log says after all other tests."""

from pathlib import Path

import pytest

from tests.cluster import audit, background
from tests.cluster.client import Client
from tests.cluster.product import NAMESPACE, RELEASE

pytestmark = pytest.mark.e2e

ACCOUNT = f"{RELEASE}-tpujob-operator"

# Granted for what no scene here does.
SELDOM = {
    ("delete", "jobset.x-k8s.io", "jobsets"),  # a changed spec makes a new JobSet
    ("update", "tpujob.dev", "tputrainingjobs/finalizers"),  # where OwnerReferencesPermissionEnforcement is on
}


def test_operator_asks_for_nothing_it_may_not_do(cluster: Client) -> None:
    assert used() - granted(cluster) == set()


def test_operator_may_do_nothing_it_does_not_ask_for(cluster: Client, request: pytest.FixtureRequest) -> None:
    chosen = {item.path for item in request.session.items}
    if not chosen >= set(Path(__file__).parent.glob("test_*.py")):
        pytest.skip("tells only after all scenes: run the whole of tests/e2e")

    assert granted(cluster) - used() - SELDOM == set()


def used() -> set[tuple[str, str, str]]:
    user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    calls = audit.calls(background.DIRECTORY / "audit.log", user)
    return {(call.verb, call.api_group, call.resource) for call in calls}


def granted(cluster: Client) -> set[tuple[str, str, str]]:
    roles = [cluster.get("clusterrole", ACCOUNT, NAMESPACE), cluster.get("role", ACCOUNT, NAMESPACE)]
    return {
        (verb, group, resource)
        for role in roles
        if role is not None
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
