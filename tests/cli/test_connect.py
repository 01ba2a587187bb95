"""Which cluster the command line talks to, and a kubeconfig that does not say."""

import functools
from pathlib import Path

import pytest
from kubernetes.config import list_kube_config_contexts

from tpujob.cluster import client
from tpujob.errors import CommandError


@pytest.mark.parametrize("content", ["contexts: [", "", "contexts: []"], ids=["no YAML", "empty", "no context"])
def test_a_kubeconfig_that_cannot_be_used_is_told(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    monkeypatch.setattr(client, "list_kube_config_contexts", functools.partial(list_kube_config_contexts, str(file)))
    with pytest.raises(CommandError, match="set KUBECONFIG, or make"):
        client.Cluster.connect()
