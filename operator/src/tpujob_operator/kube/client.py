"""The operator's reads and writes on the API server, with preconditions.

- Objects are plain JSON, not the client's models: unknown fields are preserved, and reading is cheap.
- Reads name no resource version and so are never stale: a decision to create may depend on them.
- Every write has a precondition (name free, resource version, uid), so that a replayed or late one fails instead of
  doing harm.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Self

from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_incluster_config, load_kube_config

from tpujob_contract import kubernetes_names
from tpujob_operator.kube import errors
from tpujob_operator.kube.requests import JSON, MERGE_PATCH, Object, Requests, Resource, describe
from tpujob_resource.models.decoding import readable

PAGE = 500
USER_AGENT = "tpujob-operator"

JOBS = (f"/apis/{kubernetes_names.API_VERSION}", kubernetes_names.PLURAL)
JOBSETS = (f"/apis/{kubernetes_names.JOBSET_API_VERSION}", kubernetes_names.JOBSET_PLURAL)
API_GROUPS = ("", "apis")
PODS = ("/api/v1", "pods")
EVENTS = ("/api/v1", "events")
LEASES = ("/apis/coordination.k8s.io/v1", "leases")
NODES = ("/api/v1", "nodes")
NAMESPACES = ("/api/v1", "namespaces")
WORKER_JOBS = ("/apis/batch/v1", "jobs")
SERVICES = ("/api/v1", "services")
WORKLOADS = tuple(
    (f"/apis/{kubernetes_names.KUEUE_GROUP}/{version}", "workloads") for version in ("v1beta2", "v1beta1")
)
CLUSTER_QUEUES = tuple((group, "clusterqueues") for group, _ in WORKLOADS)
"""The versions that Kueue has served, the newest first; the fields that are read here are the same in all."""
LOCAL_QUEUES = tuple(
    (f"/apis/visibility.{kubernetes_names.KUEUE_GROUP}/{version}", "localqueues") for version in ("v1beta2", "v1beta1")
)
"""Of Kueue's own API server, which serves the order of a queue."""
PRIORITY_CLASSES = ("/apis/scheduling.k8s.io/v1", "priorityclasses")
SECRETS = ("/api/v1", "secrets")
NETWORK_POLICIES = ("/apis/networking.k8s.io/v1", "networkpolicies")

SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


async def client_configuration() -> Any:
    """Address and credentials for the API server: the pod's service account, else the kubeconfig of the user."""
    configuration = Configuration()
    if in_pod():
        load_incluster_config(configuration)
    else:
        await load_kube_config(client_configuration=configuration, persist_config=False)
    return configuration


def in_pod() -> bool:
    """Whether this process runs in a pod with a service account."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and SERVICE_ACCOUNT_TOKEN.exists()


class Storage:
    """Reads and writes the objects the operator deals with."""

    def __init__(self, requests: Requests) -> None:
        """Sends with `requests`, and closes them with itself."""
        self._requests = requests
        self.may_write: Callable[[], bool] = lambda: True
        """Called before every write except those of the Lease: whether it may be sent."""
        self.written: Callable[[Resource, Object], object] = lambda resource, written: None
        """Called with each created or patched object, as the API server returned it."""

    @classmethod
    async def connect(cls) -> Self:
        """A storage on the API server of `client_configuration`; nothing is sent yet."""
        client = ApiClient(await client_configuration())
        client.user_agent = USER_AGENT
        return cls(Requests(client))

    async def __aenter__(self) -> Self:
        """Does nothing."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connections."""
        await self._requests.close()

    async def get_job(self, namespace: str, name: str) -> Object | None:
        """The TpuTrainingJob, or None."""
        return await self._get(JOBS, namespace, name)

    async def get_jobset(self, namespace: str, name: str) -> Object | None:
        """The JobSet, or None."""
        return await self._get(JOBSETS, namespace, name)

    async def serves_jobsets(self) -> bool:
        """Whether the API server serves the JobSet API in the version that is used here."""
        groups = await self._request("GET", API_GROUPS, None, None)
        served = {version["groupVersion"] for group in groups["groups"] for version in group["versions"]}
        return kubernetes_names.JOBSET_API_VERSION in served

    def list_jobs(self, namespace: str | None) -> AsyncIterator[Object]:
        """All TpuTrainingJobs of a namespace, read page by page; of all namespaces when it is None."""
        return self._list(JOBS, namespace, {})

    def list_jobsets(self, namespace: str | None) -> AsyncIterator[Object]:
        """All JobSets that were made for a TpuTrainingJob, read page by page."""
        return self._list(JOBSETS, namespace, {"labelSelector": kubernetes_names.JOB_NAME})

    async def list_pods(self, namespace: str, job: str) -> list[Object]:
        """The pods of one TpuTrainingJob, of every incarnation and attempt that still has some."""
        return [
            item async for item in self._list(PODS, namespace, {"labelSelector": f"{kubernetes_names.JOB_NAME}={job}"})
        ]

    async def list_events(self, namespace: str, *, reason: str) -> list[Object]:
        """The warning events of a namespace with this reason."""
        return [
            item async for item in self._list(EVENTS, namespace, {"fieldSelector": f"type=Warning,reason={reason}"})
        ]

    async def list_events_of_pod(self, namespace: str, pod: str) -> list[Object]:
        """The events about one pod."""
        selector = f"involvedObject.kind=Pod,involvedObject.name={pod}"
        return [item async for item in self._list(EVENTS, namespace, {"fieldSelector": selector})]

    async def list_warnings_about(self, namespace: str, *, kind: str, name: str) -> list[Object]:
        """The warning events about one object."""
        selector = f"type=Warning,involvedObject.kind={kind},involvedObject.name={name}"
        return [item async for item in self._list(EVENTS, namespace, {"fieldSelector": selector})]

    async def get_namespace(self, name: str) -> Object | None:
        """The Namespace, or None."""
        return await self._get(NAMESPACES, None, name)

    async def get_node(self, name: str) -> Object | None:
        """The node, or None."""
        return await self._get(NODES, None, name)

    async def list_nodes(self, selector: str) -> list[Object]:
        """The nodes with these labels, all of them for an empty selector."""
        query = {"labelSelector": selector} if selector else {}
        return [item async for item in self._list(NODES, None, query)]

    async def list_pods_on_node(self, node: str) -> list[Object]:
        """The pods of all namespaces that occupy resources of a node."""
        selector = f"spec.nodeName={node},status.phase!=Failed,status.phase!=Succeeded"
        return [item async for item in self._list(PODS, None, {"fieldSelector": selector})]

    async def get_worker_job(self, namespace: str, name: str) -> Object | None:
        """The Job of a JobSet's workers, or None."""
        return await self._get(WORKER_JOBS, namespace, name)

    async def resize_worker_job(self, namespace: str, name: str, workers: int, *, resource_version: str) -> None:
        """Changes the number of pods of an Indexed Job; raises Conflict if it has changed since it was read."""
        patch = {
            "metadata": {"resourceVersion": resource_version},
            # Both in one write: they have to stay equal.
            "spec": {"parallelism": workers, "completions": workers},
        }
        await self._request("PATCH", WORKER_JOBS, namespace, name, body=patch, content_type=MERGE_PATCH)

    async def get_service(self, namespace: str, name: str) -> Object | None:
        """The Service, or None."""
        return await self._get(SERVICES, namespace, name)

    async def list_workloads(self, namespace: str | None, *, job_uid: str) -> list[Object] | None:
        """Kueue's Workloads for the object of this uid; None: Kueue is not installed."""
        query = {"labelSelector": f"{kubernetes_names.KUEUE_JOB_UID}={job_uid}"}
        for resource in WORKLOADS:
            try:
                return [item async for item in self._list(resource, namespace, query)]
            except (errors.NotFound, errors.NotServed):
                continue
        return None

    async def get_workload(self, namespace: str, name: str) -> Object | None:
        """Kueue's Workload, or None."""
        return await self._get(WORKLOADS[0], namespace, name)

    async def set_workload_owners(self, workload: Object, owners: list[Object]) -> None:
        """Replaces the owners of this Workload; raises Conflict if it has changed since it was read."""
        metadata = workload["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "ownerReferences": owners}}
        await self._request(
            "PATCH", WORKLOADS[0], metadata["namespace"], metadata["name"], body=patch, content_type=MERGE_PATCH
        )

    async def create_workload(self, manifest: Object) -> None:
        """Creates a Workload of Kueue; does nothing if there is one of that name."""
        metadata = manifest["metadata"]
        try:
            await self._request("POST", WORKLOADS[0], metadata["namespace"], metadata["name"], body=manifest)
        except errors.AlreadyExists:
            return

    async def delete_workload(self, workload: Object) -> None:
        """Deletes exactly this Workload; does nothing if it is gone, raises Conflict if it was replaced."""
        metadata = workload["metadata"]
        body = {"preconditions": {"uid": metadata["uid"]}}
        try:
            await self._request("DELETE", WORKLOADS[0], metadata["namespace"], metadata["name"], body=body)
        except errors.NotFound:
            return

    async def get_priority_class(self, name: str) -> Object | None:
        """The PriorityClass, or None."""
        return await self._get(PRIORITY_CLASSES, None, name)

    async def get_cluster_queue(self, name: str) -> Object | None:
        """Kueue's ClusterQueue; None: there is none, or no Kueue."""
        for resource in CLUSTER_QUEUES:
            try:
                return await self._get(resource, None, name)
            except errors.NotServed:
                continue
        return None

    async def list_pending_workloads(self, namespace: str, queue: str, *, limit: int) -> list[Any] | None:
        """The pending Workloads of a LocalQueue, in Kueue's order; None: Kueue does not serve the order."""
        for resource in LOCAL_QUEUES:
            try:
                answer = await self._request(
                    "GET", resource, namespace, queue, "pendingworkloads", query={"limit": str(limit)}
                )
            except (errors.NotFound, errors.NotServed):
                continue
            items: list[Any] = answer.get("items") or []
            return items
        return None

    async def get_network_policy(self, namespace: str, name: str) -> Object | None:
        """The NetworkPolicy, or None."""
        return await self._get(NETWORK_POLICIES, namespace, name)

    async def create_network_policy(self, manifest: Object) -> None:
        """Creates the NetworkPolicy; raises AlreadyExists if there is one of that name."""
        metadata = manifest["metadata"]
        await self._request("POST", NETWORK_POLICIES, metadata["namespace"], metadata["name"], body=manifest)

    async def patch_network_policy(self, patch: Object) -> None:
        """Patches the NetworkPolicy with the patch's uid and resource version; raises Conflict if they do not match."""
        metadata = patch["metadata"]
        assert metadata["uid"]  # without it the patch would apply to any policy of that name
        await self._request(
            "PATCH",
            NETWORK_POLICIES,
            metadata["namespace"],
            metadata["name"],
            body=patch,
            content_type=MERGE_PATCH,
        )

    async def create_secret(self, manifest: Object) -> None:
        """Creates the Secret; does nothing if there is one of that name."""
        metadata = manifest["metadata"]
        try:
            await self._request("POST", SECRETS, metadata["namespace"], metadata["name"], body=manifest)
        except errors.AlreadyExists:
            return

    async def create_jobset(self, manifest: Object) -> Object:
        """Creates the JobSet, and returns it as created.

        Raises:
            AlreadyExists: There is one of that name.
            NotFound: JobSet is not installed, or the namespace is gone.
        """
        metadata = manifest["metadata"]
        return await self._request("POST", JOBSETS, metadata["namespace"], metadata["name"], body=manifest)

    async def set_jobset_suspended(self, jobset: Object, *, suspended: bool) -> Object:
        """Sets `spec.suspend` of a JobSet, and returns it; raises Conflict if it has changed since it was read."""
        metadata = jobset["metadata"]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "spec": {"suspend": suspended},
        }
        return await self._request(
            "PATCH", JOBSETS, metadata["namespace"], metadata["name"], body=patch, content_type=MERGE_PATCH
        )

    async def delete_jobset(self, jobset: Object) -> None:
        """Deletes exactly this JobSet and its dependents; does nothing if it is gone, raises Conflict if replaced.

        It exists, being deleted, until its pods are gone: they must not run at the same time as those of another one.
        """
        metadata = jobset["metadata"]
        body = {"propagationPolicy": "Foreground", "preconditions": {"uid": metadata["uid"]}}
        try:
            await self._request("DELETE", JOBSETS, metadata["namespace"], metadata["name"], body=body)
        except errors.NotFound:
            return

    async def patch_status(self, job: Object, patch: Mapping[str, Any]) -> Object:
        """Patches the status of a job, and returns the job; raises Conflict if it has changed since it was read."""
        metadata = job["metadata"]
        body = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": dict(patch),
        }
        return await self._request(
            "PATCH", JOBS, metadata["namespace"], metadata["name"], "status", body=body, content_type=MERGE_PATCH
        )

    async def create_event(self, event: Object) -> None:
        """Creates a core Event, unless there is one of its name."""
        metadata = event["metadata"]
        try:
            await self._request("POST", EVENTS, metadata["namespace"], metadata["name"], body=event)
        except errors.AlreadyExists:
            return

    async def get_lease(self, namespace: str, name: str) -> Object | None:
        """The Lease, or None."""
        return await self._get(LEASES, namespace, name)

    async def create_lease(self, lease: Object) -> None:
        """Creates a Lease; raises AlreadyExists if another client was faster."""
        metadata = lease["metadata"]
        await self._request("POST", LEASES, metadata["namespace"], metadata["name"], body=lease)

    async def replace_lease(self, lease: Object) -> None:
        """Replaces the Lease that was read; raises Conflict if another client was faster."""
        metadata = lease["metadata"]
        await self._request("PUT", LEASES, metadata["namespace"], metadata["name"], body=lease)

    async def _get(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        try:
            return await self._request("GET", resource, namespace, name)
        except errors.NotFound:
            return None

    async def pages(self, resource: Resource, namespace: str | None, selector: str) -> AsyncIterator[Object]:
        """A consistent list, page by page: `items`, and `metadata.resourceVersion` to watch from."""
        async for page in self._pages(resource, namespace, {"labelSelector": selector} if selector else {}):
            yield page

    def watch(
        self, resource: Resource, namespace: str | None, *, selector: str, version: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """See `Requests.watch`."""
        return self._requests.watch(resource, namespace, selector=selector, version=version)

    async def _list(self, resource: Resource, namespace: str | None, query: dict[str, str]) -> AsyncIterator[Object]:
        async for page in self._pages(resource, namespace, query):
            for item in page["items"]:
                yield item

    async def _pages(self, resource: Resource, namespace: str | None, query: dict[str, str]) -> AsyncIterator[Object]:
        limit = PAGE
        while True:
            try:
                page = await self._request("GET", resource, namespace, None, query={**query, "limit": str(limit)})
            except errors.TooLarge:
                limit = max(1, limit // 4)
                continue
            yield page
            limit = min(PAGE, limit + 1 + limit // 8)
            following = page["metadata"].get("continue")
            if not following:
                return
            query = query | {"continue": following}

    async def _request(
        self,
        method: str,
        resource: Resource,
        namespace: str | None,
        name: str | None,
        subresource: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = JSON,
    ) -> Object:
        if method != "GET" and resource != LEASES and not self.may_write():
            # Another operator is the leader by now; the observation behind this write may be old.
            what = describe(method, resource, namespace, name, subresource)
            raise errors.Unavailable(what, None, "this operator does not lead")
        answer = await self._requests.send(
            method, resource, namespace, name, subresource, query=query, body=body, content_type=content_type
        )
        if resource == JOBS:
            items = answer.get("items")
            answer = readable(answer) if items is None else {**answer, "items": list(map(readable, items))}
        if method in ("POST", "PATCH"):
            self.written(resource, answer)
        return answer
