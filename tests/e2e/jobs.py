"""TpuTrainingJobs of one namespace of a real cluster: what they are made of, and what becomes of them."""

import json
from collections.abc import Callable
from typing import Any

from tests.cluster import prometheus, storage
from tests.cluster.api import Object
from tests.cluster.client import Client
from tests.cluster.waiting import wait_for

DATA = "e2e-data"
PATIENCE_SECONDS = 150
"""Two processes start, meet and compile within it on two busy cores."""
ENVIRONMENT = [{"name": name, "value": value} for name, value in storage.ENVIRONMENT.items()]
FOREIGN_IMAGE = "tpujob-operator:0.1.0"
"""An image with Python and without the trainer, for jobs that bring their own program."""
FOR_EVER = 1_000_000


class Jobs:
    """Creates jobs and waits for what becomes of them."""

    def __init__(self, cluster: Client, namespace: str, text: str) -> None:
        """Keeps where they are, and what they are trained on."""
        self.cluster = cluster
        self.namespace = namespace
        self.text = text

    def train(self, name: str, *, steps: int, every_steps: int = FOR_EVER, **spec: Any) -> None:
        """Applies a job that trains a tiny model on two hosts; keywords are further fields of the spec."""
        trainer = {
            "model": {"layers": 1, "embedDim": 32, "heads": 2},
            "data": {"path": self.text, "tokenizer": "bytes"},
            "sequenceLength": 32,
            "batchSize": 8,
            "steps": steps,
            "logEverySteps": 5,
            "heartbeatSeconds": 30,
            "checkpoint": {"everySteps": every_steps, "keep": 2},
        }
        trainer |= spec.pop("trainer", {})
        self.apply(name, **{"checkpointDir": self.checkpoint_dir(name), "trainer": trainer, **spec})

    def run(self, name: str, program: str, **spec: Any) -> None:
        """Applies a job that runs a Python program in an image of somebody else's."""
        self.apply(name, **{"image": FOREIGN_IMAGE, "command": ["python3", "-c", program], **spec})

    def apply(self, name: str, **spec: Any) -> None:
        """Applies a job of two hosts with one device each."""
        self.cluster.apply(
            {
                "apiVersion": "tpujob.dev/v1alpha1",
                "kind": "TpuTrainingJob",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"accelerator": "cpu:2x1", "env": ENVIRONMENT, **spec},
            }
        )

    def patch(self, name: str, **spec: Any) -> None:
        """Changes fields of the spec."""
        patch = json.dumps({"spec": spec})
        self.cluster.kubectl("patch", "ttj", name, f"--namespace={self.namespace}", "--type=merge", f"--patch={patch}")

    def status(self, name: str) -> Object:
        """The job's status now; empty while it has none."""
        job = self.cluster.get("ttj", name, self.namespace)
        return (job or {}).get("status") or {}

    def wait(
        self, name: str, what: str, holds: Callable[[Object], Any], *, seconds: float = PATIENCE_SECONDS
    ) -> Object:
        """The job's status once something holds of it."""

        def status() -> Object | None:
            found = self.status(name)
            return found if holds(found) else None

        return wait_for(f"{name}: {what}", status, timeout_seconds=seconds, explain=lambda: self.explain(name))

    def wait_phase(self, name: str, phase: str, *, seconds: float = PATIENCE_SECONDS) -> Object:
        """The job's status once it is in a phase."""
        return self.wait(name, f"phase {phase}", lambda status: status.get("phase") == phase, seconds=seconds)

    def pods(self, name: str) -> list[Object]:
        """Its pods, by name."""
        found = self.cluster.items("pods", self.namespace, f"jobset.sigs.k8s.io/jobset-name={name}")
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    def logs(self, pod: Object) -> str:
        """What a pod's main container wrote."""
        return self.cluster.kubectl(
            "logs", pod["metadata"]["name"], f"--namespace={self.namespace}", "--container=main"
        )

    def checkpoint_dir(self, name: str) -> str:
        """Where the checkpoints of a job lie."""
        return f"gs://{storage.BUCKET}/{self.namespace}/{name}"

    def objects(self, name: str, prefix: str = "") -> list[str]:
        """Objects in the checkpoint directory of a job, by their names inside it."""
        directory = f"{self.namespace}/{name}/"
        return [found.removeprefix(directory) for found in storage.objects(directory + prefix)]

    def attempts(self, name: str) -> list[Object]:
        """What each attempt of a job wrote about itself, the oldest first."""
        directory = f"{self.namespace}/{name}/"
        names = [found for found in self.objects(name, "attempts/") if found.endswith(".json")]
        return [json.loads(storage.read(directory + found)) for found in sorted(names)]

    def restored_from(self) -> set[int]:
        """The steps from which the processes that run in this namespace say they went on."""
        samples = prometheus.query(f'tpujob_restored_from_step{{namespace="{self.namespace}"}}')
        return {int(float(sample["value"][1])) for sample in samples}

    def explain(self, name: str) -> str:
        """What can be said about a job that did not do what was awaited."""
        states = {pod["metadata"]["name"]: pod["status"].get("containerStatuses") for pod in self.pods(name)}
        return json.dumps({"status": self.status(name), "pods": states}, indent=1)
