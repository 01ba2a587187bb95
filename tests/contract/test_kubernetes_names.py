import re
from pathlib import Path

import pytest

from tpujob_contract import kubernetes_names

KEYS = [
    kubernetes_names.JOB_NAME,
    kubernetes_names.INCARNATION,
    kubernetes_names.SPEC_HASH,
    kubernetes_names.JOBSET_NAME,
    kubernetes_names.JOB_INDEX,
    kubernetes_names.RESTART_ATTEMPT,
    kubernetes_names.EXCLUSIVE_TOPOLOGY,
    kubernetes_names.COMPLETION_INDEX,
    kubernetes_names.KUEUE_QUEUE,
]


@pytest.mark.parametrize("key", KEYS)
def test_key_is_one_that_kubernetes_takes(key):
    prefix, name = key.split("/")
    assert len(prefix) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", prefix)
    assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", name)


ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for package in ("launcher", "resource", "operator", "trainer", "sdk", "cli")
    for path in (ROOT / package / "src").rglob("*.py")
]
FOREIGN = r"""["']/?[a-z/]*(jobset\.x-k8s\.io|jobset\.sigs\.k8s\.io|batch\.kubernetes\.io|kueue\.x-k8s\.io)"""


def test_foreign_names_are_written_once():
    assert len(SOURCES) > 100
    assert [str(path) for path in SOURCES if re.search(FOREIGN, path.read_text(encoding="utf-8"))] == []


def test_keys_differ():
    assert len(set(KEYS)) == len(KEYS)


def test_names_in_the_jobset_are_dns_labels():
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", kubernetes_names.REPLICATED_JOB)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", kubernetes_names.CONTAINER)
