"""TpuTrainingJobs of one namespace of a real cluster: what they are made of, and what becomes of them."""

import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e import waiting
from tests.e2e.surroundings import Surroundings
from tests.e2e.waiting import wait_for
from tests.statuses import flat
from tools.localcluster.api import Object
from tools.localcluster.control_plane import CommandError
from tpujob_contract import ports

DATA = "e2e-data"
PATIENCE, PATIENCE_SECONDS = waiting.PATIENCE, waiting.PATIENCE_SECONDS
FOR_EVER = 100_000_000
"""Steps: more than there is time for, on any machine."""
NAMESPACE_NAME_LENGTH = 50


class Jobs:
    """Creates jobs and waits for what becomes of them."""

    def __init__(self, surroundings: Surroundings, namespace: str, text: str) -> None:
        """Keeps where they are, and what they are trained on."""
        self.surroundings = surroundings
        self.cluster = surroundings.client
        self.storage = surroundings.storage
        self.namespace = namespace
        self.text = text

    def train(self, name: str, *, steps: int, checkpoint: Object | None = None, **spec: Any) -> None:
        """Applies a job that trains a tiny model on two hosts; keywords are further fields of the spec."""
        trainer = {
            "model": {"layers": 1, "embedDim": 32, "heads": 2},
            "data": {"path": self.text, "tokenizer": "bytes"},
            "sequenceLength": 32,
            "batchSize": 8,
            "steps": steps,
            "logEverySteps": 50,
            "heartbeatSeconds": 30,
            "checkpoint": {"keep": 2, **(checkpoint or {})},
        }
        trainer |= spec.pop("trainer", {})
        self.apply(name, **{"checkpointDir": self.checkpoint_dir(name), "trainer": trainer, **spec})

    def run(self, name: str, program: str, **spec: Any) -> None:
        """Applies a job that runs a Python program in an image without the trainer."""
        image = self.surroundings.python_image
        self.apply(name, **{"image": image, "command": ["python3", "-c", program], **spec})

    def apply(self, name: str, **spec: Any) -> None:
        """Applies a job of two hosts with one device each; `secretEnv` are variables from Secrets."""
        variables = {
            **self.surroundings.job_environment,
            **{each["name"]: each["value"] for each in spec.get("env", [])},
        }
        named = [{"name": key, "value": value} for key, value in variables.items()]
        spec["env"] = [*named, *spec.pop("secretEnv", [])]
        self.cluster.apply(
            {
                "apiVersion": "tpujob.dev/v1beta1",
                "kind": "TpuTrainingJob",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"accelerator": "cpu:2x1", **spec},
            }
        )

    def patch(self, name: str, **spec: Any) -> None:
        """Changes fields of the spec."""
        patch = json.dumps({"spec": spec})
        self.cluster.kubectl("patch", "ttj", name, f"--namespace={self.namespace}", "--type=merge", f"--patch={patch}")

    def delete(self, name: str) -> None:
        """Deletes the job; returns when it is gone, its children perhaps later."""
        self.cluster.kubectl(
            "delete", "ttj", name, f"--namespace={self.namespace}", "--ignore-not-found", "--timeout=120s"
        )

    def status(self, name: str) -> Object:
        """The job's status now, flat; empty while it has none."""
        job = self.cluster.get("ttj", name, self.namespace)
        return flat((job or {}).get("status") or {})

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

    def wait_until_it_trains(self, name: str, *, hosts: int = 2) -> int:
        """The step from which all processes of a job train, 0 for a first start, once they do and agree on one.

        Asked of the processes: after a restart the status keeps the step of the attempt before until it hears another.
        """

        def steps() -> set[int] | None:
            pods = [pod for pod in self.pods(name) if "deletionTimestamp" not in pod["metadata"]]
            try:
                reports = [self.report(pod) for pod in pods]
            except CommandError:
                return None  # some are still starting, or already ending
            does_train = len(pods) == hosts and all(report["phase"] in ("training", "saving") for report in reports)
            began = {report["restored_from"] or 0 for report in reports}
            return began if does_train and len(began) == 1 else None

        return wait_for(
            f"{name}: processes that train", steps, timeout_seconds=PATIENCE_SECONDS, explain=lambda: self.explain(name)
        ).pop()

    def pods(self, name: str) -> list[Object]:
        """Its pods, by name."""
        found = self.cluster.items("pods", self.namespace, f"jobset.sigs.k8s.io/jobset-name={name}")
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    def logs(self, pod: Object) -> str:
        """What a pod's main container wrote."""
        return self.cluster.kubectl(
            "logs", pod["metadata"]["name"], f"--namespace={self.namespace}", "--container=main"
        )

    def told(self, pod: Object) -> Object:
        """The JSON object that a pod's program printed, wherever it stands in the log.

        The launcher writes to stderr, and a node may log the lines of two streams in another order than they came.
        """

        def found() -> list[str]:
            return [line for line in self.logs(pod).splitlines() if line.startswith("{")]

        (line,) = wait_for(f"what {pod['metadata']['name']} prints", found, explain=lambda: self.logs(pod))
        told: Object = json.loads(line)
        return told

    def run_inside(self, pod: str, program: str) -> str:
        """What a Python program prints that is run beside the trainer in its container."""
        return self.cluster.kubectl(
            "exec", pod, f"--namespace={self.namespace}", "--container=main", "--", "python3", "-c", program
        )

    def report(self, pod: Object) -> Object:
        """What a trainer says of itself."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}:{ports.REPORT}/proxy/report"
        return json.loads(self.cluster.read(path))

    def checkpoint_dir(self, name: str) -> str:
        """Where the checkpoints of a job lie."""
        return f"gs://{self.storage.name}/{self.namespace}/{name}"

    def objects(self, name: str, prefix: str = "") -> dict[str, int]:
        """Objects in the checkpoint directory of a job, by their names inside it, with their bytes."""
        directory = f"{self.namespace}/{name}/"
        found = self.storage.objects(directory + prefix)
        return {path.removeprefix(directory): size for path, size in found.items()}

    def read(self, name: str, path: str) -> bytes:
        """An object in the checkpoint directory of a job."""
        return self.storage.read(f"{self.namespace}/{name}/{path}")

    def attempts(self, name: str) -> list[Object]:
        """What each attempt of a job wrote about itself, the oldest first."""
        directory = f"{self.namespace}/{name}/"
        names = [found for found in self.objects(name, "attempts/") if found.endswith(".json")]
        return [json.loads(self.storage.read(directory + found)) for found in sorted(names)]

    def explain(self, name: str) -> str:
        """What can be said about a job that did not do what was awaited."""
        states = {pod["metadata"]["name"]: pod["status"].get("containerStatuses") for pod in self.pods(name)}
        return json.dumps({"status": self.status(name), "pods": states}, indent=1)


@contextmanager
def jobs_in_namespace(surroundings: Surroundings, text: str, name: str, labels: dict[str, str]) -> Iterator[Jobs]:
    """Jobs in a new namespace called after a test, which goes afterwards, in the background."""
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).removeprefix("test-")
    namespace = f"{readable[:NAMESPACE_NAME_LENGTH].strip('-')}-{secrets.token_hex(2)}"
    client = surroundings.client
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
    wait_for("the default service account", lambda: client.get("serviceaccount", "default", namespace))
    yield Jobs(surroundings, namespace, text)
    client.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
