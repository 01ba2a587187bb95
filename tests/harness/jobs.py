"""TpuTrainingJobs of one namespace of a real API server, for live tests."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.statuses import flat
from tools.localcluster import pods
from tools.localcluster.api import Api, ApiError, Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.nodes import create_node, delete_node
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names

TIMEOUT_SECONDS = 240
NAMESPACE_SECONDS = 60
"""For the end of a namespace: one that waits for pods that are kept never ends."""


class Jobs:
    """Creates jobs and waits for what the operator makes of them."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        """Keeps where they are."""
        self.plane = plane
        self.api: Api = plane.api
        self.namespace = namespace
        self.path = f"/apis/tpujob.dev/v1beta1/namespaces/{namespace}/tputrainingjobs"
        self._node: str | None = None

    def create(self, name: str, labels: Any = None, **spec: Any) -> Object:
        """Creates a job of two hosts; `labels` are of its metadata, keywords are spec fields by their YAML names."""
        fields = {"accelerator": "cpu:2x1", "image": "example.com/image", "command": ["train"], **spec}
        fields = {key: value for key, value in fields.items() if value is not None}
        return self.api.create(
            self.path, {**self._kind(), "metadata": {"name": name, "labels": labels}, "spec": fields}
        )

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
        """The job's status, flat, once something holds of it."""

        def status() -> Object | None:
            found: Object = flat(self.get(name).get("status") or {})
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

    def bind(self, found: list[Object]) -> None:
        """Binds pods to a node of the namespace's own: when they are deleted, they stay until their end is played."""
        if self._node is None:
            self._node = f"node-of-{self.namespace[-6:]}"
            create_node(self.api, self._node)
        for pod in found:
            pods.bind(self.api, pod, self._node)

    def close(self) -> None:
        """Has what is left on the node removed."""
        if self._node is not None:
            delete_node(self.api, self._node)

    def run(self, name: str, *, pod_ip: str | None = None, bound: bool = False) -> list[Object]:
        """Plays all pods of a job as running and ready, on a node if asked; the first one has the address."""
        found = self.wait_pods(name)
        if bound:
            self.bind(found)
        for index, pod in enumerate(found):
            pods.set_running(self.api, pod, pod_ip=pod_ip if index == 0 else None)
        return found

    def finish(self, name: str) -> None:
        """Plays all pods of a job as finished."""
        for pod in self.wait_pods(name):
            pods.set_succeeded(self.api, pod)

    def end_pod(self, pod: Object, *, exit_code: int, message: str = "") -> None:
        """Plays the end of a pod, which may be gone already: JobSet deletes the others after the first."""
        try:
            pods.set_failed(self.api, pod, exit_code=exit_code, message=message)
        except ApiError as error:
            if error.status != 404:
                raise

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Whatever happens to pods meanwhile has happened when the Jobs, and so JobSet, notice the first of it."""
        pid = self.plane.pid_of("kube-controller-manager")
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def delete_pod(self, pod: Object) -> None:
        """Removes the object of a pod, which JobSet may have done before."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
        try:
            self.api.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def end_deleted(self, pod: Object, *, exit_code: int, message: str = "") -> None:
        """Plays the end of a pod that is being deleted, who-ever removes the object; it may be gone before."""
        self.end_pod(pod, exit_code=exit_code, message=message)
        self.delete_pod(pod)

    def end_namespace(self, there: list[Object]) -> None:
        """Deletes the namespace, and plays the ends of its pods; returns when it is gone."""
        self.api.delete(f"/api/v1/namespaces/{self.namespace}")
        for pod in there:
            self.end_deleted(pod, exit_code=143)

        def is_gone() -> bool:
            return all(each["metadata"]["name"] != self.namespace for each in self.api.items("/api/v1/namespaces"))

        wait_for("the namespace to be gone", is_gone, timeout_seconds=NAMESPACE_SECONDS)

    def events(self, name: str) -> list[Object]:
        """The events about a job."""
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/events")
        return [
            e for e in found if e["involvedObject"]["kind"] == "TpuTrainingJob" and e["involvedObject"]["name"] == name
        ]

    def _kind(self) -> Object:
        return {"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob"}
