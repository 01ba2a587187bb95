"""The API server of the kubeconfig, as plain JSON objects."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from kubernetes.config import ConfigException, kube_config, list_kube_config_contexts, new_client_from_config
from urllib3 import Timeout
from urllib3.exceptions import HTTPError
from yaml import YAMLError  # comes with kubernetes

from tpujob.errors import CommandError
from tpujob.jobs.yaml_text import NotYaml, check_aliases
from tpujob_contract import ExitCode, kubernetes_names
from tpujob_resource.models.decoding import decoded

type Object = dict[str, Any]
"""A Kubernetes object as decoded JSON."""

JOBS = f"/apis/{kubernetes_names.API_VERSION}"
MERGE_PATCH = "application/merge-patch+json"
INSTALL_OPERATOR = (
    "helm install tpujob charts/tpujob-operator --namespace tpujob-system --create-namespace "
    "--set image.registry=REGISTRY (an administrator does it; docs/install.md)"
)
TIMEOUT_SECONDS = (5.0, 30.0)
"""To connect, and for a response."""
NO_TIMEOUT = (5.0, None)
"""For a streamed response, such as a followed log."""


class ApiError(CommandError):
    """The API server refused a request; with the request, the status and the server's message."""

    def __init__(self, request: str, status: int, message: str) -> None:
        code = ExitCode.NOT_FOUND if status in (401, 403, 404) else 1
        advice = "; your account needs that right" if status == 403 else ""
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
            CommandError: there is no kubeconfig, it cannot be read, or there is no such context in it.
        """
        try:
            _check_kubeconfig()
            contexts, active = _contexts(context)
            chosen = next((c for c in contexts if c["name"] == context), None) if context else active
            if chosen is None:
                names = ", ".join(c["name"] for c in contexts)
                raise CommandError(f"--context: {context!r} is not in the kubeconfig; there are {names}")
            client = new_client_from_config(context=chosen["name"])
        except (ConfigException, YAMLError, NotYaml, RecursionError) as error:
            raise CommandError(
                f"no cluster: {_kubeconfig_problem(error)}; set KUBECONFIG, or make ~/.kube/config, for instance with "
                f"`gcloud container clusters get-credentials CLUSTER`. {_here()}"
            ) from error
        return cls(client, namespace or chosen["context"].get("namespace") or "default", context=chosen["name"])

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
        names = f"{status.get('jobSet')}-{kubernetes_names.REPLICATED_JOB}-"
        uids: set[str] | None = None
        try:
            selector = urlencode({"labelSelector": f"{kubernetes_names.JOBSET_NAME}={status.get('jobSet')}"})
            jobs = self.items(f"/apis/batch/v1/namespaces/{self.namespace}/jobs?{selector}")
            uids = {found["metadata"]["uid"] for found in jobs if _controller(found)["uid"] == status.get("jobSetUid")}
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
        except (HTTPError, OSError) as error:
            raise UnreachableError(
                f"the cluster at {host} does not answer: {error}; check the network, and `kubectl get nodes`",
                exit_code=1,
            ) from error
        if response.status >= 400:
            raise ApiError(what, response.status, _message(response.data))
        return response


def _check_kubeconfig() -> None:
    """Its loader keeps aliases as they are, and each step after it follows them.

    Raises:
        NotYaml: there is more behind them than any kubeconfig holds.
    """
    for name in kube_config.KUBE_CONFIG_DEFAULT_LOCATION.split(os.pathsep):
        with suppress(OSError, UnicodeError):  # of which the loader complains
            check_aliases(Path(name).expanduser().read_text(encoding="utf-8"))


def _controller(found: Object) -> Object:
    """The reference to an object's controller, with empty values if it has none."""
    owners = (owner for owner in found["metadata"].get("ownerReferences") or () if owner.get("controller"))
    return next(owners, {"kind": "", "name": "", "uid": ""})


def _contexts(wanted: str | None) -> tuple[list[Any], Any]:
    """All contexts of the kubeconfig, and its current one, which may be missing only if `wanted` is given."""
    try:
        contexts, active = list_kube_config_contexts()
    except ConfigException:
        if wanted is None:
            raise
        # The library's public function requires a current context; its loader accepts another one instead.
        file = kube_config.KUBE_CONFIG_DEFAULT_LOCATION
        loader = kube_config._get_kube_config_loader(filename=file, active_context=wanted)  # noqa: SLF001
        contexts, active = loader.list_contexts(), None
    return contexts, active


def _kubeconfig_problem(error: Exception) -> str:
    text = str(error).rstrip(".")
    return "this machine has no kubeconfig" if text.endswith("No configuration found") else text


def _here() -> str:
    """How to see the runs on this machine: a command for clusters may have been meant for one of them."""
    runs = sorted({path.parent.name for path in Path(".tpujob").glob("*/*/logs")})
    if not runs:
        return "`tpujob run` needs no cluster"
    logs = f"`tpujob logs --local {runs[0]}`"
    return f"Runs on this machine: `tpujob get --local` lists them, {logs} shows a log ({', '.join(runs[:3])})"


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
