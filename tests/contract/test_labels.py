import re

import pytest

from tpujob_contract import labels

KEYS = [
    labels.JOB_NAME,
    labels.INCARNATION,
    labels.SPEC_HASH,
    labels.JOBSET_NAME,
    labels.JOB_INDEX,
    labels.RESTART_ATTEMPT,
    labels.EXCLUSIVE_TOPOLOGY,
    labels.COMPLETION_INDEX,
    labels.KUEUE_QUEUE,
]


@pytest.mark.parametrize("key", KEYS)
def test_key_is_one_that_kubernetes_takes(key):
    prefix, name = key.split("/")
    assert len(prefix) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", prefix)
    assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", name)


def test_keys_differ():
    assert len(set(KEYS)) == len(KEYS)


def test_names_in_the_jobset_are_dns_labels():
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", labels.REPLICATED_JOB)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", labels.CONTAINER)
