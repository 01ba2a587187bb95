"""A cluster as a person with a kubeconfig sees it: through kubectl and Helm."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.cluster import binaries
from tests.cluster.api import Object
from tests.cluster.control_plane import CommandError


class Client:
    """Any cluster, this machine's or another."""

    def __init__(self, kubeconfig: Path, *, prefers_installed: bool = False) -> None:
        """Keeps the kubeconfig; connects on each command.

        Args:
            kubeconfig: With the rights of an administrator.
            prefers_installed: Whether kubectl and Helm are this machine's, where it has them, instead of ours.
        """
        self.kubeconfig = kubeconfig
        self._prefers_installed = prefers_installed

    def run_tool(self, name: str, *arguments: str | Path, stdin: str | None = None) -> str:
        """What kubectl or Helm prints.

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
        """Variables of the commands: the whole environment, for a kubeconfig may call a cloud's program to log in."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def program(self, name: str) -> Path:
        """kubectl or Helm."""
        installed = shutil.which(name) if self._prefers_installed else None
        return Path(installed) if installed else binaries.path(name)

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """What kubectl prints."""
        return self.run_tool("kubectl", *arguments, stdin=stdin)

    def get(self, kind: str, name: str, namespace: str) -> Object | None:
        """An object, or None."""
        output = self.kubectl("get", kind, name, f"--namespace={namespace}", "--output=json", "--ignore-not-found")
        return json.loads(output) if output else None

    def items(self, kind: str, namespace: str, selector: str = "", *, everywhere: bool = False) -> list[Object]:
        """The objects of a kind in a namespace, or in all, those with these labels."""
        where = "--all-namespaces" if everywhere else f"--namespace={namespace}"
        return json.loads(self.kubectl("get", kind, where, f"--selector={selector}", "--output=json"))["items"]

    def apply(self, *manifests: Object) -> None:
        """Applies manifests as `kubectl apply` does."""
        together = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(together))
