"""Processor time of commands that do next to nothing, in turns with an empty Python program.

Run it from the repository's root: `make bench-commands`.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

JOB = "examples/quickstart.yaml"
COMMANDS = {
    "an empty program": ["-c", "pass"],
    "--version": ["-m", "tpujob", "--version"],
    "--help": ["-m", "tpujob", "--help"],
    "check --help": ["-m", "tpujob", "check", "--help"],
    "render": ["-m", "tpujob", "render", JOB],
    "get": ["-m", "tpujob", "get"],
}
ROUNDS = 10
NO_CLUSTER = """\
apiVersion: v1
kind: Config
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: none, user: {token: none}}]
"""


def cpu_seconds(arguments: list[str], environ: Mapping[str, str]) -> float:
    """Runs Python with arguments; returns the processor time of the process and its descendants."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=environ, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder, "config")
        kubeconfig.write_text(NO_CLUSTER)
        # Bytecode is written once, as by an installation; the first round, which writes it, does not count.
        environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPYCACHEPREFIX": folder}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        rounds = [{name: cpu_seconds(line, environ) for name, line in COMMANDS.items()} for _ in range(ROUNDS + 1)][1:]
    for name in COMMANDS:
        seconds = [each[name] for each in rounds]
        print(f"{name:18} {statistics.median(seconds):.3f} CPU s, least {min(seconds):.3f}")


if __name__ == "__main__":
    main()
