"""The logs of a job on the cluster: those of its pods, and the command for those of deleted pods."""

import heapq
import queue
import re
import shlex
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from tpujob.cluster.client import ApiError, Cluster
from tpujob.output.errors import CommandError
from tpujob_contract import kubernetes_names

_GKE_CONTEXT = re.compile(r"gke_(?P<project>[^_]+)_(?P<location>[^_]+)_(?P<cluster>.+)")
"""A context name as `gcloud container clusters get-credentials` writes it."""


def gcloud_command(job: Mapping[str, Any], namespace: str, context: str) -> str:
    """The `gcloud logging read` command line for all pods that a job ever had.

    Args:
        job: The TpuTrainingJob.
        namespace: Its namespace.
        context: Of the kubeconfig; a GKE context name contains project and cluster.
    """
    metadata = job["metadata"]
    wanted = [
        'resource.type="k8s_container"',
        f'resource.labels.namespace_name="{namespace}"',
        f'resource.labels.pod_name=~"^{metadata["name"]}-"',
    ]
    if created := metadata.get("creationTimestamp"):
        wanted.append(f'timestamp>="{created}"')
    options = ["--order=asc", "--format=value(timestamp, resource.labels.pod_name, textPayload)"]
    if (gke := _GKE_CONTEXT.fullmatch(context)) is not None:
        wanted.append(f'resource.labels.cluster_name="{gke["cluster"]}"')
        options.append(f"--project={gke['project']}")
    return shlex.join(["gcloud", "logging", "read", " AND ".join(wanted), *options])


NO_TIME = "-"
"""Replaces a missing timestamp; sorts before all timestamps."""


def place(pod: Mapping[str, Any]) -> tuple[int, int]:
    """Slice and host of a pod, from its labels."""
    found = pod["metadata"].get("labels") or {}
    return int(found.get(kubernetes_names.JOB_INDEX, 0)), int(found.get(kubernetes_names.COMPLETION_INDEX, 0))


def prefix(pod: Mapping[str, Any]) -> str:
    """The prefix of a pod's lines: `slice 0 host 3 | `."""
    slice_index, host = place(pod)
    return f"slice {slice_index} host {host} | "


def job_logs(
    cluster: Cluster,
    name: str,
    *,
    slice_index: int | None = None,
    host: int | None = None,
    tail: int | None = None,
    is_followed: bool = False,
    is_merged: bool = False,
) -> Iterator[str]:
    """The lines of the hosts' logs, the first that failed at the front.

    Args:
        cluster: Where the job is.
        name: Of the job.
        slice_index: Only this slice.
        host: Only this host of each slice.
        tail: Last lines of each host; None: all.
        is_followed: Lines as they arrive, until all hosts have ended.
        is_merged: Lines by time, instead of host by host.

    Raises:
        CommandError: there is no such job, or it has no pods now.
    """
    pods = pods_of(cluster, name, slice_index=slice_index, host=host)
    if is_followed:
        return follow(cluster, pods, tail=tail)
    return (merge if is_merged else one_by_one)(read_all(cluster, pods, tail=tail))


def pods_of(cluster: Cluster, name: str, *, slice_index: int | None, host: int | None) -> list[Mapping[str, Any]]:
    """The selected pods of a job, in the order of `chosen`.

    Raises:
        CommandError: there is no such job, or it has no pods now.
    """
    job = cluster.job(name)
    if pods := chosen(cluster.pods(job), slice_index=slice_index, host=host):
        return pods
    raise CommandError(
        f"{name}: has no pods now. How each attempt ended: tpujob logs {name} --attempts",
        f"the logs of pods that are gone, on GKE: {gcloud_command(job, cluster.namespace, cluster.context)}",
        exit_code=1,
    )


def chosen(pods: Sequence[Mapping[str, Any]], *, slice_index: int | None, host: int | None) -> list[Mapping[str, Any]]:
    """The selected pods: the one that failed first at the front, the others by slice and host."""
    wanted = [
        pod
        for pod in pods
        if (slice_index is None or place(pod)[0] == slice_index) and (host is None or place(pod)[1] == host)
    ]
    failed = sorted((at, place(pod)) for pod in wanted if (at := failed_at(pod)))
    first = failed[0][1] if failed else None
    return sorted(wanted, key=lambda pod: (place(pod) != first, place(pod)))


def failed_at(pod: Mapping[str, Any]) -> str | None:
    """When the pod's program ended with an error, as Kubernetes writes it; None: it did not."""
    for container in pod.get("status", {}).get("containerStatuses") or ():
        ended = container.get("state", {}).get("terminated") or {}
        if ended.get("exitCode"):
            return str(ended.get("finishedAt") or "")
    return None


def merge(streams: Iterable[tuple[str, Iterator[str]]]) -> Iterator[str]:
    """Lines of several logs in the order of their leading timestamps.

    Args:
        streams: For each log, the prefix of its lines, and the lines with their timestamps.
    """
    for _, line in heapq.merge(*(_stamped(begin, lines) for begin, lines in streams), key=lambda pair: pair[0]):
        yield line


def one_by_one(streams: Iterable[tuple[str, Iterator[str]]]) -> Iterator[str]:
    """Lines of several logs, one log after the other; `streams` as in `merge`."""
    for begin, lines in streams:
        for line in lines:
            yield begin + line.partition(" ")[2]


def read(cluster: Cluster, pod: Mapping[str, Any], *, tail: int | None) -> Iterator[str]:
    """Lines of a pod's log, each with its timestamp; a missing or broken log gives a line with the reason."""
    query = {"timestamps": "true", **({"tailLines": str(tail)} if tail is not None else {})}
    is_empty = True
    try:
        for line in _lines(cluster.stream(_path(cluster, pod, query))):
            is_empty = False
            yield line
        if is_empty:  # The API server also returns an empty log for a pod without a node.
            yield f"{NO_TIME} (no log: nothing was written yet)"
    except ApiError as error:
        yield f"{NO_TIME} (no log: {error.message})"
    except CommandError as error:
        yield f"{NO_TIME} (the log ends here: {error})"


def read_all(
    cluster: Cluster, pods: Sequence[Mapping[str, Any]], *, tail: int | None
) -> list[tuple[str, Iterator[str]]]:
    """For each pod, the prefix of its lines, empty for a single pod, and the lines of `read`."""
    begin = prefix if len(pods) > 1 else lambda pod: ""
    return [(begin(pod), read(cluster, pod, tail=tail)) for pod in pods]


def follow(cluster: Cluster, pods: Sequence[Mapping[str, Any]], *, tail: int | None) -> Iterator[str]:
    """Lines of all pods with their prefixes, as they arrive, until all logs have ended."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def copy(pod: Mapping[str, Any]) -> None:
        query = {"follow": "true", **({"tailLines": str(tail)} if tail is not None else {})}
        try:
            for line in _lines(cluster.stream(_path(cluster, pod, query))):
                lines.put(prefix(pod) + line)
        except ApiError as error:
            lines.put(f"{prefix(pod)}(no log: {error.message})")
        except CommandError as error:
            lines.put(f"{prefix(pod)}(the log ends here: {error})")
        finally:
            lines.put(None)

    for pod in pods:
        threading.Thread(target=copy, args=(pod,), daemon=True).start()
    left = len(pods)
    while left:
        line = lines.get()
        if line is None:
            left -= 1
        else:
            yield line


def _path(cluster: Cluster, pod: Mapping[str, Any], query: Mapping[str, str]) -> str:
    name = pod["metadata"]["name"]
    container = pod["spec"]["containers"][0]["name"]
    options = urlencode({"container": container, **query})
    return f"/api/v1/namespaces/{cluster.namespace}/pods/{name}/log?{options}"


def _lines(parts: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _stamped(begin: str, lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        stamp, _, text = line.partition(" ")
        yield stamp, begin + text
