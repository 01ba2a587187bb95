"""Kubeconfig files: the API server's address and the credentials for kubectl, Helm, controllers and tests."""

import base64
import json
from pathlib import Path

from tools.localcluster.api import Api


def write_kubeconfig(kubeconfig: Path, *, url: str, ca_file: Path, token: str, namespace: str = "default") -> Path:
    """Writes a kubeconfig that needs no other file, readable by its owner only; returns its path.

    Args:
        kubeconfig: Where to write it.
        url: Of the API server.
        ca_file: The certificate of the authority that issued the API server's.
        token: The bearer token of the user.
        namespace: The default namespace of commands.
    """
    certificate_authority = base64.b64encode(ca_file.read_bytes()).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority-data": certificate_authority}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
    }
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(json.dumps(content, indent=2))  # JSON is YAML
    return kubeconfig


def api_of(kubeconfig: Path, ca_file: Path) -> Api:
    """The API of the server in a kubeconfig, as the user in it.

    Args:
        kubeconfig: As `write_kubeconfig` wrote it.
        ca_file: The certificate of the authority that issued the API server's.
    """
    content = json.loads(kubeconfig.read_text())
    token = content["users"][0]["user"]["token"]
    return Api(content["clusters"][0]["cluster"]["server"], token=token, ca_file=ca_file)
