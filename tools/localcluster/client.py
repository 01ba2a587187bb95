"""Access to a cluster as a user with a kubeconfig has it: through kubectl and Helm."""

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
from pathlib import Path

from tools.localcluster import binaries
from tools.localcluster.api import Object
from tools.localcluster.control_plane import CommandError
from tools.localcluster.plain_http import opened
from tpujob_contract import kubernetes_names

PLACES = {
    "ttj": "/apis/tpujob.dev/v1beta1/namespaces/{}/tputrainingjobs",
    "jobsets": f"/apis/{kubernetes_names.JOBSET_API_VERSION}/namespaces/{{}}/jobsets",
    "jobs": "/apis/batch/v1/namespaces/{}/jobs",
    "networkpolicies": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "pods": "/api/v1/namespaces/{}/pods",
    "services": "/api/v1/namespaces/{}/services",
    "serviceaccount": "/api/v1/namespaces/{}/serviceaccounts",
}
"""The API paths of kinds that are read often; `{}` is the namespace."""
NOT_FOUND = 404
TIMEOUT_SECONDS = 30


class Client:
    """A client of any cluster, on this machine or elsewhere."""

    def __init__(self, kubeconfig: Path, *, prefers_installed: bool = False, proxy_url: str | None = None) -> None:
        """Keeps the kubeconfig; connects on each command.

        Args:
            kubeconfig: With administrator rights.
            prefers_installed: Whether to use this machine's kubectl and Helm, if it has them, instead of ours.
            proxy_url: Of a `kubectl proxy`, for frequent reads: a kubectl process for each takes 0.1 s of processor
                time, and tests that poll would use up a core.
        """
        self.kubeconfig = kubeconfig
        self._proxy_url = proxy_url
        self._prefers_installed = prefers_installed

    def run_tool(self, name: str, *arguments: str | Path, stdin: str | None = None) -> str:
        """Runs kubectl or Helm; returns its output.

        Raises:
            CommandError: It exited with an error.
        """
        command = [str(self.program(name)), *map(str, arguments)]
        result = subprocess.run(command, input=stdin or "", env=self.environment, capture_output=True, text=True)
        if result.returncode != 0:
            raise CommandError(f"{name} {' '.join(map(str, arguments))}: {result.stderr.strip()}")
        return result.stdout

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the commands: the whole environment, as a kubeconfig may call a cloud's login program."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def program(self, name: str) -> Path:
        """The path of kubectl or Helm."""
        installed = shutil.which(name) if self._prefers_installed else None
        return Path(installed) if installed else binaries.path(name)

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """Runs kubectl; returns its output."""
        return self.run_tool("kubectl", *arguments, stdin=stdin)

    def get(self, kind: str, name: str, namespace: str) -> Object | None:
        """The object; None: there is none."""
        if self._proxy_url is not None and kind in PLACES:
            try:
                return json.loads(self.read(f"{PLACES[kind].format(namespace)}/{name}"))
            except CommandError as error:
                if isinstance(error.__cause__, urllib.error.HTTPError) and error.__cause__.code == NOT_FOUND:
                    return None
                raise
        output = self.kubectl("get", kind, name, f"--namespace={namespace}", "--output=json", "--ignore-not-found")
        return json.loads(output) if output else None

    def items(self, kind: str, namespace: str, selector: str = "", *, everywhere: bool = False) -> list[Object]:
        """The objects of a kind that match a label selector, in a namespace or in all namespaces."""
        if self._proxy_url is not None and kind in PLACES and not everywhere:
            query = urllib.parse.urlencode({"labelSelector": selector})
            return json.loads(self.read(f"{PLACES[kind].format(namespace)}?{query}"))["items"]
        where = "--all-namespaces" if everywhere else f"--namespace={namespace}"
        return json.loads(self.kubectl("get", kind, where, f"--selector={selector}", "--output=json"))["items"]

    def read(self, path: str) -> str:
        """The API server's response to a GET of a path.

        Raises:
            CommandError: The request failed.
        """
        if self._proxy_url is None:
            return self.kubectl("get", f"--raw={path}")
        try:
            with opened(f"{self._proxy_url}{path}", timeout_seconds=TIMEOUT_SECONDS) as answer:
                text: str = answer.read().decode()
                return text
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            raise CommandError(f"GET {path}: {error}") from error

    def apply(self, *manifests: Object) -> None:
        """Applies manifests as `kubectl apply` does."""
        together = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(together))
