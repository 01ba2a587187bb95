"""The name server of the one-machine cluster: CoreDNS on the bridge, which resolves the names of pods."""

import json
from pathlib import Path

from tools.localcluster.control_plane import HOST, ControlPlane, User
from tools.localcluster.network import ADDRESS
from tools.localcluster.plain_http import answers
from tools.localcluster.processes import Process, free_ports

USER = User("system:coredns")

# From CoreDNS' own deployment: https://github.com/coredns/deployment/blob/master/kubernetes/coredns.yaml.sed
RIGHTS = [
    {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
]
# No cache: the pods of a job look each other up before all have addresses, and the negative answer must not last.
CONFIGURATION = """\
.:53 {{
    bind {address}
    errors
    ready {ready}
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 1
    }}
    forward . /etc/resolv.conf
}}
"""


def start_name_server(plane: ControlPlane, program: Path) -> Process:
    """Starts the name server; returns when it resolves the cluster's names."""
    grant_cluster_role(plane, USER.name, RIGHTS)
    (port,) = free_ports(1)
    file = plane.directory / "Corefile"
    kubeconfig = plane.kubeconfig_of_user(USER)
    file.write_text(CONFIGURATION.format(address=ADDRESS, ready=f"{HOST}:{port}", kubeconfig=kubeconfig))
    process = Process("coredns", [program, "-conf", file], plane.directory / "coredns.log")
    process.wait_until_ready("CoreDNS to know the cluster", lambda: answers(f"http://{HOST}:{port}/ready"))
    return process


def grant_cluster_role(plane: ControlPlane, user: str, rules: list[dict[str, list[str]]]) -> None:
    """Grants a user rights in all namespaces."""
    name = user.replace(":", "-")
    role = {"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    items = [{"apiVersion": "rbac.authorization.k8s.io/v1", **item} for item in (role, binding)]
    plane.kubectl("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
