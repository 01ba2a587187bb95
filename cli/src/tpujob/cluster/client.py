"""The API server of the kubeconfig, as plain JSON objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from urllib3 import Timeout
from urllib3.exceptions import HTTPError, SSLError

from tpujob.cluster.kubeconfig import LOG_IN, open_client
from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode, kubernetes_names
from tpujob_contract.typed import object_in
from tpujob_resource.models.decoding import decoded

type Object = dict[str, Any]
"""A Kubernetes object as decoded JSON."""

JOBS = f"/apis/{kubernetes_names.API_VERSION}"
MERGE_PATCH = "application/merge-patch+json"
INSTALL_OPERATOR = (
    "helm install tpujob charts/tpujob-operator --namespace tpujob-system --create-namespace "
    "--set image.registry=REGISTRY (an administrator does it; docs/install.md)"
)
ANONYMOUS = "system:anonymous"
"""The API server's name for who sends no credentials."""
TIMEOUT_SECONDS = (5.0, 30.0)
"""To connect, and for a response."""
NO_TIMEOUT = (5.0, None)
"""For a streamed response, such as a followed log."""


class ApiError(CommandError):
    """The API server refused a request; with the request, the status and the server's message."""

    def __init__(self, request: str, status: int, message: str) -> None:
        code = ExitCode.NOT_FOUND if status in (401, 403, 404) else 1
        advice = ""
        if status == 401 or (status == 403 and ANONYMOUS in message):
            advice = f"; the cluster does not know you: {LOG_IN}"
        elif status == 403:
            advice = "; your account needs that right"
        super().__init__(f"{request}: {status}: {message}{advice}", exit_code=code)
        self.status = status
        self.message = message


class UnreachableError(CommandError):
    """The API server does not answer, which may be temporary."""


def not_installed() -> CommandError:
    """The error for an API server that does not know the kind."""
    return CommandError(
        f"this cluster has no TpuTrainingJobs; install the operator: {INSTALL_OPERATOR}", exit_code=ExitCode.NOT_FOUND
    )


class Cluster:
    """Requests to one API server, in one namespace."""

    def __init__(self, client: Any, namespace: str, *, context: str = "") -> None:
        self._client = client
        self.namespace = namespace
        self.context = context
        """Its name in the kubeconfig."""

    @classmethod
    def connect(cls, *, context: str | None = None, namespace: str | None = None) -> Cluster:
        """The cluster that kubectl would use; no request is sent yet.

        Args:
            context: Of the kubeconfig; None: its current one.
            namespace: None: that of the context, else `default`.

        Raises:
            CommandError: as `open_client`.
        """
        client, chosen, its_namespace = open_client(context)
        return cls(client, namespace or its_namespace, context=chosen)

    def job(self, name: str) -> Object:
        """A TpuTrainingJob.

        Raises:
            CommandError: there is none of that name.
        """
        try:
            return self.get(self.job_path(name))
        except ApiError as error:
            if error.status != 404:
                raise
            there = [job["metadata"]["name"] for job in self.jobs()]
            listed = f"there are {', '.join(there)}" if there else "there is none"
            raise CommandError(
                f"NAME: no TpuTrainingJob {name!r} in namespace {self.namespace}; {listed}; see -n",
                exit_code=ExitCode.NOT_FOUND,
            ) from error

    def jobs(self, *, all_namespaces: bool = False) -> list[Object]:
        """The TpuTrainingJobs of the namespace, or of all.

        Raises:
            CommandError: the cluster does not know the resource.
        """
        where = "" if all_namespaces else f"/namespaces/{self.namespace}"
        try:
            return list(self.items(f"{JOBS}{where}/{kubernetes_names.PLURAL}"))
        except ApiError as error:
            if error.status != 404:
                raise
            raise not_installed() from error

    def pods(self, job: Object) -> list[Object]:
        """The pods of a job, including those that are left from earlier attempts.

        Others in the namespace can write its labels on their pods, so the owners decide: Jobs of the job's JobSet. An
        account that may not list Jobs compares their names alone.
        """
        status = job.get("status") or {}
        jobset_uid = (status.get("internal") or {}).get("jobSetUid")
        names = f"{status.get('jobSet')}-{kubernetes_names.REPLICATED_JOB}-"
        uids: set[str] | None = None
        try:
            selector = urlencode({"labelSelector": f"{kubernetes_names.JOBSET_NAME}={status.get('jobSet')}"})
            jobs = self.items(f"/apis/batch/v1/namespaces/{self.namespace}/jobs?{selector}")
            uids = {found["metadata"]["uid"] for found in jobs if _controller(found)["uid"] == jobset_uid}
        except ApiError as error:
            if error.status != 403:
                raise
        selector = urlencode({"labelSelector": f"{kubernetes_names.JOB_NAME}={job['metadata']['name']}"})
        pods = self.items(f"/api/v1/namespaces/{self.namespace}/pods?{selector}")
        owners = ((pod, _controller(pod)) for pod in pods)
        return [
            pod
            for pod, owner in owners
            if owner["kind"] == "Job" and owner["name"].startswith(names) and (uids is None or owner["uid"] in uids)
        ]

    def job_path(self, name: str = "") -> str:
        """The path of a job, or of all jobs in the namespace."""
        return f"{JOBS}/namespaces/{self.namespace}/{kubernetes_names.PLURAL}" + (f"/{quote(name)}" if name else "")

    def get(self, path: str) -> Object:
        """The object at a path."""
        return self._request("GET", path)

    def items(self, path: str) -> Iterator[Object]:
        """The objects of a list, page by page."""
        joint, more = "&" if "?" in path else "?", ""
        while True:
            page = self.get(f"{path}{joint}limit=500{more}")
            yield from page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return
            more = f"&continue={quote(token)}"

    def create(self, path: str, value: Mapping[str, Any]) -> Object:
        """Creates an object; returns it as the server made it."""
        return self._request("POST", path, value)

    def replace(self, path: str, value: Mapping[str, Any]) -> Object:
        """Replaces an object; its resource version must be the current one."""
        return self._request("PUT", path, value)

    def patch(self, path: str, change: Mapping[str, Any]) -> Object:
        """Merges a change into an object."""
        return self._request("PATCH", path, change, content_type=MERGE_PATCH)

    def delete(self, path: str) -> None:
        """Deletes an object; its dependents are deleted in the background."""
        self._request("DELETE", path)

    def stream(self, path: str) -> Iterator[bytes]:
        """The body of a response, in parts as they arrive.

        Raises:
            CommandError: the server refuses or does not answer, or the connection breaks.
        """
        response = self._send("GET", path, None, "application/json", NO_TIMEOUT, preload=False)
        try:
            yield from response.stream()
        except (HTTPError, OSError) as error:
            raise CommandError(f"the connection to the cluster broke: {error}; ask again", exit_code=1) from error
        finally:
            response.release_conn()

    @contextmanager
    def execute(self, pod: str, container: str, command: Sequence[str]) -> Iterator[Any]:
        """Starts a command in a container; the connection (`executing.Stream`) is closed at the end of the block.

        Raises:
            CommandError: the API server or the kubelet refuses, or the connection breaks.
        """
        from kubernetes.stream.ws_client import WSClient, get_websocket_url
        from websocket import WebSocketException

        path = f"/api/v1/namespaces/{self.namespace}/pods/{quote(pod)}/exec"
        asked = {"container": container, "stdout": "true", "stderr": "true", "stdin": "false", "tty": "false"}
        query = urlencode([*asked.items(), *(("command", part) for part in command)])
        headers = {"User-Agent": "tpujob"}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
        configuration = self._client.configuration
        try:
            url = get_websocket_url(f"{configuration.host}{path}?{query}")
            stream = WSClient(configuration, url, headers, capture_all=False, binary=True)
            try:
                yield stream
            finally:
                stream.close()
        except (WebSocketException, OSError) as error:
            raise CommandError(f"exec in {pod}: {error}", exit_code=1) from error

    def _request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> Object:
        answer: Object = decoded(self._send(method, path, body, content_type, TIMEOUT_SECONDS).data)
        return answer

    def _send(
        self,
        method: str,
        path: str,
        body: object,
        content_type: str,
        timeout: tuple[float, float | None],
        *,
        preload: bool = True,
    ) -> Any:
        what = f"{method.lower()} {path.partition('?')[0]}"
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": "tpujob"}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        host = self._client.configuration.host
        try:
            response = self._client.rest_client.pool_manager.request(
                method,
                host + path,
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=Timeout(connect=timeout[0], read=timeout[1]),
                preload_content=preload,
                retries=False,
            )
        except SSLError as error:
            raise CommandError(
                f"the certificate of {host} is not trusted: {error}; the kubeconfig has that of another cluster, or a "
                "proxy answers: `gcloud container clusters get-credentials CLUSTER` writes it again",
                exit_code=1,
            ) from error
        except (HTTPError, OSError) as error:
            raise UnreachableError(
                f"the cluster at {host} does not answer: {error}; check the network, and `kubectl get nodes`",
                exit_code=1,
            ) from error
        if response.status >= 400:
            raise ApiError(what, response.status, _message(response.data))
        return response


def _controller(found: Object) -> Object:
    """The reference to an object's controller, with empty values if it has none."""
    owners = (owner for owner in found["metadata"].get("ownerReferences") or () if owner.get("controller"))
    return next(owners, {"kind": "", "name": "", "uid": ""})


def _message(body: bytes) -> str:
    return str(object_in(body).get("message") or body[:200].decode(errors="replace"))
