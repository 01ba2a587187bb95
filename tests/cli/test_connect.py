"""Which cluster the command line talks to, and a kubeconfig that does not say."""

import functools
from pathlib import Path

import pytest
from kubernetes.config import kube_config, list_kube_config_contexts

from tests.wrong_inputs.files import BOMB
from tpujob.cluster import client
from tpujob.errors import CommandError


@pytest.mark.parametrize(
    "content",
    ["contexts: [", "", "contexts: []", "contexts: " + "[" * 5000, f"contexts: {BOMB}"],
    ids=["no YAML", "empty", "no context", "deep", "aliases of aliases"],
)
def test_a_kubeconfig_that_cannot_be_used_is_told(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    monkeypatch.setattr(client, "list_kube_config_contexts", functools.partial(list_kube_config_contexts, str(file)))
    with pytest.raises(CommandError, match="set KUBECONFIG, or make"):
        client.Cluster.connect()
