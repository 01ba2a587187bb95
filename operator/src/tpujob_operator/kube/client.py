"""The operator's reads and writes on the API server, with preconditions.

- Objects are plain JSON, not the client's models: unknown fields are preserved, and reading is cheap.
- Reads name no resource version and so are never stale: a decision to create may depend on them.
- Every write has a precondition (name free, resource version, uid), so that a replayed or late one fails instead of
  doing harm.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
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

JOBS = Resource(kubernetes_names.API_VERSION, kubernetes_names.PLURAL)
JOBSETS = Resource(kubernetes_names.JOBSET_API_VERSION, kubernetes_names.JOBSET_PLURAL)
API_GROUPS = Resource("", "apis")
PODS = Resource("v1", "pods")
EVENTS = Resource("v1", "events")
LEASES = Resource("coordination.k8s.io/v1", "leases")
NODES = Resource("v1", "nodes")
NAMESPACES = Resource("v1", "namespaces")
WORKER_JOBS = Resource("batch/v1", "jobs")
SERVICES = Resource("v1", "services")
PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "priorityclasses")
SECRETS = Resource("v1", "secrets")
NETWORK_POLICIES = Resource("networking.k8s.io/v1", "networkpolicies")

_KUEUE_VERSIONS = tuple(f"{kubernetes_names.KUEUE_GROUP}/{version}" for version in ("v1beta2", "v1beta1"))
"""That Kueue has served, the newest first; the fields that are read here are the same in all."""
QUEUE_PRIORITY_CLASSES = Resource(_KUEUE_VERSIONS[0], "workloadpriorityclasses")
WORKLOADS = tuple(Resource(version, "workloads") for version in _KUEUE_VERSIONS)
CLUSTER_QUEUES = tuple(Resource(version, "clusterqueues") for version in _KUEUE_VERSIONS)
LOCAL_QUEUES = tuple(Resource(f"visibility.{version}", "localqueues") for version in _KUEUE_VERSIONS)
"""Of Kueue's own API server, which serves the order of a queue."""

type Objects = list[Object]
"""For annotations in a class that has a method of the name `list`."""

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


@dataclass(frozen=True, slots=True)
class Target:
    """An object to write to, and what must be true of it."""

    namespace: str
    name: str
    uid: str | None = None
    """It is not another object of that name."""
    resource_version: str | None = None
    """It has not changed."""

    @classmethod
    def same(cls, read: Object) -> Self:
        """This object, changed since it was read or not."""
        metadata = read["metadata"]
        return cls(metadata["namespace"], metadata["name"], uid=metadata["uid"])

    @classmethod
    def unchanged(cls, read: Object) -> Self:
        """This object as it was read."""
        metadata = read["metadata"]
        return cls(metadata["namespace"], metadata["name"], resource_version=metadata["resourceVersion"])

    @property
    def preconditions(self) -> Object:
        """As the API server reads them in the metadata of a patch and in the options of a delete."""
        found = {"uid": self.uid, "resourceVersion": self.resource_version}
        given = {field: value for field, value in found.items() if value is not None}
        assert given  # without any, a late write changes whatever has the name by then
        return given


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

    async def get(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        subresource: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> Object | None:
        """The object, or None; `namespace` is None for objects of the cluster."""
        try:
            return await self._request("GET", resource, namespace, name, subresource, query=query)
        except errors.NotFound:
            return None

    async def list(self, resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "") -> Objects:
        """The objects of a namespace, or of all namespaces, that match both selectors."""
        return [item async for page in self.pages(resource, namespace, labels, fields) for item in page["items"]]

    async def pages(
        self, resource: Resource, namespace: str | None, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Object]:
        """A consistent list, page by page: `items`, and `metadata.resourceVersion` to watch from."""
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        query = {name: selector for name, selector in selectors.items() if selector}
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
            query |= {"continue": following}

    def watch(
        self, resource: Resource, namespace: str | None, *, selector: str, version: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """See `Requests.watch`."""
        return self._requests.watch(resource, namespace, selector=selector, version=version)

    async def create(self, resource: Resource, manifest: Object) -> Object:
        """Creates an object, and returns it as created.

        Raises:
            AlreadyExists: There is one of that name.
            NotFound: The API server does not serve the kind, or the namespace is gone.
        """
        metadata = manifest["metadata"]
        return await self._request("POST", resource, metadata["namespace"], metadata["name"], body=manifest)

    async def patch(
        self, resource: Resource, target: Target, patch: Object, *, subresource: str | None = None
    ) -> Object:
        """Changes these fields of an object, and returns it; raises Conflict if the target's preconditions fail."""
        body = {**patch, "metadata": {**patch.get("metadata", {}), **target.preconditions}}
        return await self._request(
            "PATCH", resource, target.namespace, target.name, subresource, body=body, content_type=MERGE_PATCH
        )

    async def replace(self, resource: Resource, manifest: Object) -> Object:
        """Replaces an object; raises Conflict if it has another resource version than the manifest."""
        metadata = manifest["metadata"]
        return await self._request("PUT", resource, metadata["namespace"], metadata["name"], body=manifest)

    async def delete(self, resource: Resource, target: Target, *, propagation: str | None = None) -> None:
        """Deletes an object; does nothing if it is gone, raises Conflict if the target's preconditions fail."""
        how = {} if propagation is None else {"propagationPolicy": propagation}
        body = {**how, "preconditions": target.preconditions}
        try:
            await self._request("DELETE", resource, target.namespace, target.name, body=body)
        except errors.NotFound:
            return

    async def serves(self, resource: Resource) -> bool:
        """Whether the API server serves this version of the API group of a resource."""
        groups = await self._request("GET", API_GROUPS, None, None)
        return resource.api_version in {v["groupVersion"] for group in groups["groups"] for v in group["versions"]}

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


async def first_served[Answer](
    versions: Iterable[Resource], read: Callable[[Resource], Awaitable[Answer | None]]
) -> Answer | None:
    """What `read` returns for the first of these versions that the API server serves; None: it serves none."""
    for resource in versions:
        try:
            if (answer := await read(resource)) is not None:
                return answer
        except (errors.NotFound, errors.NotServed):
            continue
    return None
