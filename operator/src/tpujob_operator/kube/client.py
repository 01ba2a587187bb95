"""The API server, as the rest of the operator knows it: the one module that talks to it and catches client exceptions.

- Objects are plain JSON, not the client's models: what we do not know passes through unharmed, and reading is cheap.
- Reads name no resource version and so are never stale: a decision to create may rest on them.
- Every write carries a precondition (name free, resource version, uid), so that a replayed or late one fails instead of
  harming.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client import ApiClient, ApiException, Configuration
from kubernetes.aio.config import load_incluster_config, load_kube_config

from tpujob_contract import kubernetes_names
from tpujob_operator import metrics
from tpujob_operator.kube import errors

type Object = dict[str, Any]
"""A Kubernetes object as decoded JSON."""

TIMEOUT = aiohttp.ClientTimeout(total=15, sock_connect=5)
PAGE = 500
MERGE_PATCH = "application/merge-patch+json"
USER_AGENT = "tpujob-operator"

JOBS = (f"/apis/{kubernetes_names.API_VERSION}", kubernetes_names.PLURAL)
JOBSETS = (f"/apis/{kubernetes_names.JOBSET_API_VERSION}", kubernetes_names.JOBSET_PLURAL)
PODS = ("/api/v1", "pods")
EVENTS = ("/api/v1", "events")
LEASES = ("/apis/coordination.k8s.io/v1", "leases")
NODES = ("/api/v1", "nodes")
NETWORK_POLICIES = ("/apis/networking.k8s.io/v1", "networkpolicies")

SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


async def client_configuration() -> Any:
    """Where the API server is and who we are there: the pod's service account, else the kubeconfig of the user."""
    configuration = Configuration()
    if os.environ.get("KUBERNETES_SERVICE_HOST") and _in_pod():
        load_incluster_config(configuration)
    else:
        await load_kube_config(client_configuration=configuration, persist_config=False)
    return configuration


def _in_pod() -> bool:
    return SERVICE_ACCOUNT_TOKEN.exists()


class Storage:
    """Reads and writes the objects the operator deals with."""

    def __init__(self, client: Any) -> None:
        """Wraps a client, which stays the caller's to close unless used as a context manager."""
        self._client = client
        client.user_agent = USER_AGENT
        self._own_versions: dict[tuple[str, str], str] = {}
        self.may_write: Callable[[], bool] = lambda: True
        """Asked before every write but those of the Lease itself."""

    @classmethod
    async def connect(cls) -> Self:
        """A storage on the API server of `client_configuration`; nothing is sent yet."""
        return cls(ApiClient(await client_configuration()))

    async def __aenter__(self) -> Self:
        """Does nothing."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connections."""
        await self._client.close()

    async def get_job(self, namespace: str, name: str) -> Object | None:
        """The TpuTrainingJob, or None."""
        return await self._get(JOBS, namespace, name)

    async def get_jobset(self, namespace: str, name: str) -> Object | None:
        """The JobSet, or None."""
        return await self._get(JOBSETS, namespace, name)

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

    async def get_node(self, name: str) -> Object | None:
        """The node, or None."""
        return await self._get(NODES, None, name)

    async def get_network_policy(self, namespace: str, name: str) -> Object | None:
        """The NetworkPolicy, or None."""
        return await self._get(NETWORK_POLICIES, namespace, name)

    async def create_network_policy(self, manifest: Object) -> None:
        """Makes the NetworkPolicy; AlreadyExists when there is one of that name."""
        metadata = manifest["metadata"]
        await self._request("POST", NETWORK_POLICIES, metadata["namespace"], metadata["name"], body=manifest)

    async def patch_network_policy(self, patch: Object) -> None:
        """Merges into the one NetworkPolicy whose uid and resource version the patch names; else Conflict."""
        metadata = patch["metadata"]
        assert metadata["uid"]  # without it the patch would fit whatever has the name
        await self._request(
            "PATCH",
            NETWORK_POLICIES,
            metadata["namespace"],
            metadata["name"],
            body=patch,
            content_type=MERGE_PATCH,
        )

    async def create_jobset(self, manifest: Object) -> Object:
        """The JobSet as created.

        Raises:
            AlreadyExists: There is one of that name.
            NotFound: JobSet is not installed, or the namespace is gone.
        """
        metadata = manifest["metadata"]
        return await self._request("POST", JOBSETS, metadata["namespace"], metadata["name"], body=manifest)

    async def set_jobset_suspended(self, jobset: Object, *, suspended: bool) -> Object:
        """The JobSet with the new `spec.suspend`; Conflict when it has changed since it was read."""
        metadata = jobset["metadata"]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "spec": {"suspend": suspended},
        }
        return await self._request(
            "PATCH", JOBSETS, metadata["namespace"], metadata["name"], body=patch, content_type=MERGE_PATCH
        )

    async def delete_jobset(self, jobset: Object) -> None:
        """Deletes this very JobSet and what belongs to it; nothing when it is gone, Conflict when it was replaced.

        It stays, being deleted, until its pods are gone: none of them may run beside those of another one.
        """
        metadata = jobset["metadata"]
        body = {"propagationPolicy": "Foreground", "preconditions": {"uid": metadata["uid"]}}
        try:
            await self._request("DELETE", JOBSETS, metadata["namespace"], metadata["name"], body=body)
        except errors.NotFound:
            return

    async def patch_status(self, job: Object, patch: Mapping[str, Any]) -> Object:
        """The TpuTrainingJob with this merge patch on its status; Conflict when it has changed since it was read."""
        metadata = job["metadata"]
        body = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": dict(patch),
        }
        return await self._request(
            "PATCH", JOBS, metadata["namespace"], metadata["name"], "status", body=body, content_type=MERGE_PATCH
        )

    def note_own_write(self, written: Object) -> None:
        """Keeps that this version of an object is one that this process made and has nothing to learn from."""
        metadata = written["metadata"]
        self._own_versions[metadata["namespace"], metadata["name"]] = metadata["resourceVersion"]

    def is_own_write(self, seen: Mapping[str, Any]) -> bool:
        """Whether what a watch shows is the version that was noted last."""
        metadata = seen["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if self._own_versions.get(key) != metadata.get("resourceVersion"):
            return False
        del self._own_versions[key]
        return True

    async def create_event(self, event: Object) -> None:
        """Writes a core Event unless one of its name is there."""
        metadata = event["metadata"]
        try:
            await self._request("POST", EVENTS, metadata["namespace"], metadata["name"], body=event)
        except errors.AlreadyExists:
            return

    async def get_lease(self, namespace: str, name: str) -> Object | None:
        """The Lease, or None."""
        return await self._get(LEASES, namespace, name)

    async def create_lease(self, lease: Object) -> None:
        """Makes a Lease; AlreadyExists when somebody was quicker."""
        metadata = lease["metadata"]
        await self._request("POST", LEASES, metadata["namespace"], metadata["name"], body=lease)

    async def replace_lease(self, lease: Object) -> None:
        """Writes a Lease over the one that was read; Conflict when somebody was quicker."""
        metadata = lease["metadata"]
        await self._request("PUT", LEASES, metadata["namespace"], metadata["name"], body=lease)

    async def _get(self, resource: tuple[str, str], namespace: str | None, name: str) -> Object | None:
        try:
            return await self._request("GET", resource, namespace, name)
        except errors.NotFound:
            return None

    async def _list(
        self, resource: tuple[str, str], namespace: str | None, query: dict[str, str]
    ) -> AsyncIterator[Object]:
        query = query | {"limit": str(PAGE)}
        while True:
            page = await self._request("GET", resource, namespace, None, query=query)
            for item in page["items"]:
                yield item
            following = page["metadata"].get("continue")
            if not following:
                return
            query = query | {"continue": following}

    async def _request(
        self,
        method: str,
        resource: tuple[str, str],
        namespace: str | None,
        name: str | None,
        subresource: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        prefix, plural = resource
        parts = [prefix, *(["namespaces", quote(namespace)] if namespace else []), plural]
        if name is not None and method != "POST":
            parts += [quote(name), *([subresource] if subresource else [])]
        what = f"{method.lower()} {plural}{f'/{subresource}' if subresource else ''} {namespace or '*'}/{name or ''}"
        if method != "GET" and resource != LEASES and not self.may_write():
            # Somebody else leads by now; what this was decided from may be old.
            raise errors.Unavailable(what, None, "this operator does not lead")
        status = "none"
        try:
            method, url, headers, payload, _ = await self._client.param_serialize(
                method,
                "/".join(parts),
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
            )
            response = await self._client.call_api(method, url, headers, payload, _request_timeout=TIMEOUT)
            data = await response.read()
            status = str(response.status)
        except (aiohttp.ClientError, ApiException, TimeoutError, OSError) as error:
            raise errors.Unavailable(what, None, f"{type(error).__name__}: {error}") from error
        finally:
            metrics.API_REQUESTS.labels(method, plural, status).inc()
        return _decoded(what, response.status, data)


def _decoded(what: str, status: int, data: bytes) -> Object:
    try:
        answer: Object = json.loads(data)
    except ValueError:
        # Not the API server, but something before it; or it is going down.
        raise errors.Unavailable(what, status, data[:200].decode(errors="replace")) from None
    if status >= 400:
        raise errors.from_status(what, status, answer.get("reason", ""), answer.get("message", ""))
    return answer
