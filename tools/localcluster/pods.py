"""Writes the pod status that a kubelet would write; no container runs.

A test control plane has no nodes, so its pods stay Pending forever. These functions write a pod's status in place of a
kubelet, and the real Job and JobSet controllers act on it. Other effects of a real kubelet (time, ordering, probes,
logs) are missing: tests that depend on them need a node.

The API server deletes a pod that was never bound to a node at once. A pod that was bound stays, with a deletion
timestamp, until `end_deleted_pod` is called.
"""

import datetime
from collections.abc import Sequence

from tools.localcluster.api import Api, Object
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names


def pods_of_jobset(api: Api, namespace: str, jobset: str) -> list[Object]:
    """The pods of a JobSet that are not being deleted, ordered by job index, then completion index."""
    pods = api.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector={kubernetes_names.JOBSET_NAME}%3D{jobset}")
    return sorted((pod for pod in pods if "deletionTimestamp" not in pod["metadata"]), key=_indices)


def wait_for_pods(
    api: Api, namespace: str, jobset: str, count: int, *, other_than: Sequence[Object] = ()
) -> list[Object]:
    """Waits until a JobSet has `count` pods that have not ended; returns them.

    Args:
        api: The API server.
        namespace: Of the JobSet.
        jobset: Its name.
        count: The number of pods.
        other_than: Pods to ignore, such as those before a restart.
    """
    old = {pod["metadata"]["uid"] for pod in other_than}

    def expected_pods() -> list[Object] | None:
        pods = [
            pod
            for pod in pods_of_jobset(api, namespace, jobset)
            if pod["metadata"]["uid"] not in old and pod["status"]["phase"] in ("Pending", "Running")
        ]
        return pods if len(pods) == count else None

    def what_is_there() -> str:
        pods = pods_of_jobset(api, namespace, jobset)
        return f"there are {[(pod['metadata']['name'], pod['status']['phase']) for pod in pods]}"

    return wait_for(f"{count} pods of JobSet {namespace}/{jobset}", expected_pods, explain=what_is_there)


def bind(api: Api, pod: Object, node: str) -> None:
    """Assigns a pod to a node, as the scheduler does.

    The node need not exist, but the controller manager deletes pods of missing nodes some 40 s later.
    """
    binding = {"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": node}}
    api.create(f"{_path(pod)}/binding", binding)


def set_running(api: Api, pod: Object, *, ready: bool = True, pod_ip: str | None = None) -> Object:
    """Writes the status of a pod whose containers all run.

    Args:
        api: The API server.
        pod: The pod, in any stored version.
        ready: Whether the pod is ready.
        pod_ip: Its address; None: it has none.
    """
    state = {"running": {"startedAt": _now()}}
    statuses = [_container_status(container, state, ready=ready) for container in _containers(pod)]
    status: Object = {"phase": "Running", "startTime": _now(), "containerStatuses": statuses}
    if pod_ip is not None:
        status |= {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
    return _write(api, pod, status, Initialized=True, ContainersReady=ready, Ready=ready)


def set_waiting(api: Api, pod: Object, *, reason: str, message: str = "") -> Object:
    """Writes that the containers cannot start; the reason is e.g. ImagePullBackOff or CreateContainerConfigError."""
    state = {"waiting": {"reason": reason, "message": message}}
    statuses = [_container_status(container, state, ready=False) for container in _containers(pod)]
    status = {"phase": "Pending", "startTime": _now(), "containerStatuses": statuses}
    return _write(api, pod, status, Initialized=True, ContainersReady=False, Ready=False)


def set_succeeded(api: Api, pod: Object, *, message: str = "") -> Object:
    """Writes that all containers exited with 0; `message` is the termination message."""
    return _end(api, pod, "Succeeded", dict.fromkeys(_containers(pod), 0), message, None)


def set_failed(
    api: Api,
    pod: Object,
    *,
    exit_code: int,
    message: str = "",
    container: str | None = None,
    disruption: str | None = None,
) -> Object:
    """Writes that one container failed and all have ended.

    Args:
        api: The API server.
        pod: The pod, in any stored version.
        exit_code: Not zero; above 128 for a signal.
        message: The termination message of the container.
        container: The one that failed, by default the first; the others exited with 0.
        disruption: The reason of a DisruptionTarget condition, such as TerminationByKubelet; None: no such condition.
    """
    exit_codes = dict.fromkeys(_containers(pod), 0)
    exit_codes[container or _containers(pod)[0]] = exit_code
    return _end(api, pod, "Failed", exit_codes, message, disruption)


def end_deleted_pod(api: Api, pod: Object, *, exit_code: int, message: str = "") -> None:
    """Ends a bound pod that is being deleted: writes that its containers ended, then removes the object."""
    if exit_code == 0:
        set_succeeded(api, pod, message=message)
    else:
        set_failed(api, pod, exit_code=exit_code, message=message)
    api.delete(_path(pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})


def _end(api: Api, pod: Object, phase: str, exit_codes: dict[str, int], message: str, disruption: str | None) -> Object:
    statuses = []
    for container, exit_code in exit_codes.items():
        terminated = {
            "exitCode": exit_code,
            "reason": "Completed" if exit_code == 0 else "Error",
            "message": message if exit_code or phase == "Succeeded" else "",
            "startedAt": _now(),
            "finishedAt": _now(),
        }
        statuses.append(_container_status(container, {"terminated": terminated}, ready=False))
    status = {"phase": phase, "containerStatuses": statuses}
    conditions = {"DisruptionTarget": True} if disruption else {}
    reasons = {"DisruptionTarget": disruption} if disruption else {}
    return _write(api, pod, status, reasons, Initialized=True, ContainersReady=False, Ready=False, **conditions)


def _write(api: Api, pod: Object, status: Object, reasons: dict[str, str] | None = None, **conditions: bool) -> Object:
    """Patches the status; conditions of other types are kept."""
    current = api.get(_path(pod))["status"].get("conditions", [])
    kept = [condition for condition in current if condition["type"] not in conditions]
    written = [
        {"type": kind, "status": str(value), "reason": (reasons or {}).get(kind, ""), "lastTransitionTime": _now()}
        for kind, value in conditions.items()
    ]
    # The uid makes the API server reject the patch if the name belongs to another pod by now.
    body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {**status, "conditions": [*kept, *written]}}
    return api.patch(f"{_path(pod)}/status", body)


def _container_status(container: str, state: Object, *, ready: bool) -> Object:
    return {
        "name": container,
        "image": "image",
        "imageID": "",
        "restartCount": 0,
        "ready": ready,
        "started": "running" in state,
        "state": state,
    }


def _containers(pod: Object) -> list[str]:
    return [container["name"] for container in pod["spec"]["containers"]]


def _indices(pod: Object) -> tuple[int, int]:
    labels = pod["metadata"]["labels"]
    return int(labels[kubernetes_names.JOB_INDEX]), int(labels.get(kubernetes_names.COMPLETION_INDEX, "0"))


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
