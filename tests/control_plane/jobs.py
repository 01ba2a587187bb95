"""TpuTrainingJobs of one namespace of a real API server, for live tests."""

from collections.abc import Callable
from typing import Any

from tools.localcluster import pods
from tools.localcluster.api import Api, ApiError, Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names

TIMEOUT_SECONDS = 60


class Jobs:
    """Creates jobs and waits for what the operator makes of them."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        """Keeps where they are."""
        self.plane = plane
        self.api: Api = plane.api
        self.namespace = namespace
        self.path = f"/apis/tpujob.dev/v1alpha1/namespaces/{namespace}/tputrainingjobs"

    def create(self, name: str, **spec: Any) -> Object:
        """Creates a job of two hosts; keywords are spec fields by their YAML names, None removes one."""
        fields = {"accelerator": "cpu:2x1", "image": "example.com/image", "command": ["train"], **spec}
        fields = {key: value for key, value in fields.items() if value is not None}
        return self.api.create(self.path, {**self._kind(), "metadata": {"name": name}, "spec": fields})

    def get(self, name: str) -> Object:
        """The job as it is now."""
        return self.api.get(f"{self.path}/{name}")

    def patch(self, name: str, **spec: Any) -> Object:
        """Changes fields of the spec."""
        return self.api.patch(f"{self.path}/{name}", {"spec": spec})

    def jobset(self, name: str) -> Object | None:
        """The JobSet of that name, or None."""
        try:
            return self.api.get(
                f"/apis/{kubernetes_names.JOBSET_API_VERSION}/namespaces/{self.namespace}/jobsets/{name}"
            )
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def wait(self, name: str, what: str, holds: Callable[[Object], Any], *, seconds: float = TIMEOUT_SECONDS) -> Object:
        """The job's status once something holds of it."""

        def status() -> Object | None:
            found: Object = self.get(name).get("status") or {}
            return found if holds(found) else None

        return wait_for(f"{name}: {what}", status, timeout_seconds=seconds, explain=lambda: str(self.get(name)))

    def wait_phase(self, name: str, phase: str) -> Object:
        """The job's status once it is in a phase."""
        return self.wait(name, f"phase {phase}", lambda status: status.get("phase") == phase)

    def wait_corrected(self, path: str, spec: Object) -> None:
        """Returns when the object at a path has this spec again."""
        wait_for(f"{path} to be as it was", lambda: self.api.get(path)["spec"] == spec, timeout_seconds=TIMEOUT_SECONDS)

    def wait_pods(self, name: str, count: int = 2, *, other_than: list[Object] | None = None) -> list[Object]:
        """The job's pods once there are that many."""
        return pods.wait_for_pods(self.api, self.namespace, name, count, other_than=other_than or [])

    def run(self, name: str, *, pod_ip: str | None = None) -> list[Object]:
        """Plays all pods of a job as running and ready; the first one has the address."""
        found = self.wait_pods(name)
        for index, pod in enumerate(found):
            pods.set_running(self.api, pod, pod_ip=pod_ip if index == 0 else None)
        return found

    def finish(self, name: str) -> None:
        """Plays all pods of a job as finished."""
        for pod in self.wait_pods(name):
            pods.set_succeeded(self.api, pod)

    def end_deleted(self, pod: Object, *, exit_code: int, message: str = "") -> None:
        """Plays the end of a pod that is being deleted, who-ever removes the object; it may be gone before."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
        try:
            pods.set_failed(self.api, pod, exit_code=exit_code, message=message)
            self.api.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})
        except ApiError as error:
            if error.status != 404:
                raise

    def events(self, name: str) -> list[Object]:
        """The events about a job."""
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/events")
        return [
            e for e in found if e["involvedObject"]["kind"] == "TpuTrainingJob" and e["involvedObject"]["name"] == name
        ]

    def _kind(self) -> Object:
        return {"apiVersion": "tpujob.dev/v1alpha1", "kind": "TpuTrainingJob"}
