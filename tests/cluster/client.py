"""A cluster as a person with a kubeconfig sees it: through kubectl and Helm."""

import json
import os
import subprocess
from pathlib import Path

from tests.cluster import binaries
from tests.cluster.api import Object
from tests.cluster.control_plane import CommandError


class Client:
    """Any cluster, this machine's or another."""

    def __init__(self, kubeconfig: Path) -> None:
        """Keeps the kubeconfig; connects on each command."""
        self.kubeconfig = kubeconfig

    def run_tool(self, name: str, *arguments: str | Path, stdin: str | None = None) -> str:
        """What kubectl or Helm prints.

        Raises:
            CommandError: It exited with an error.
        """
        # The whole environment: a kubeconfig may call a program of a cloud's to log in.
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        command = [str(binaries.path(name)), *map(str, arguments)]
        result = subprocess.run(command, input=stdin or "", env=environment, capture_output=True, text=True)
        if result.returncode != 0:
            raise CommandError(f"{name} {' '.join(map(str, arguments))}: {result.stderr.strip()}")
        return result.stdout

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """What kubectl prints."""
        return self.run_tool("kubectl", *arguments, stdin=stdin)

    def get(self, kind: str, name: str, namespace: str) -> Object | None:
        """An object, or None."""
        output = self.kubectl("get", kind, name, f"--namespace={namespace}", "--output=json", "--ignore-not-found")
        return json.loads(output) if output else None

    def items(self, kind: str, namespace: str, selector: str = "") -> list[Object]:
        """The objects of a kind in a namespace, those with these labels."""
        return json.loads(
            self.kubectl("get", kind, f"--namespace={namespace}", f"--selector={selector}", "--output=json")
        )["items"]

    def apply(self, *manifests: Object) -> None:
        """Applies manifests as `kubectl apply` does."""
        self.kubectl("apply", "--filename=-", stdin="\n---\n".join(json.dumps(manifest) for manifest in manifests))
