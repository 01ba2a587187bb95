"""A Kubernetes control plane: etcd, kube-apiserver and kube-controller-manager on this machine, without nodes.

- All state belongs to one run: a directory has keys, data, logs and the audit log; a new run in it starts from scratch.
- Authentication is by token, authorization by RBAC. Each controller has its own service account, so the audit log
  distinguishes them.
- Custom resource definitions given here exist before the controller manager starts: its garbage collector looks for new
  kinds only every 30 s, and until then the children of a deleted owner of a new kind stay.
"""

import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import urllib.error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tools.localcluster import binaries
from tools.localcluster.api import Api, ApiError, Object
from tools.localcluster.certificates import CertificateAuthority, write_service_account_key
from tools.localcluster.kubeconfig import write_kubeconfig
from tools.localcluster.processes import Process, free_ports
from tools.localcluster.waiting import wait_for

HOST = "127.0.0.1"
SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc"
SERVICE_ADDRESSES = "10.96.0.0/16"
KUBERNETES_SERVICE_IP = "10.96.0.1"
"""The address at which pods connect to the API server."""
FRONT_PROXY = "front-proxy"
TOKEN_SECONDS = 24 * 3600
DATABASE_BYTES = 8 * 2**30
"""etcd's quota; its default of 2 GiB is used up by some ten thousand pods and their revisions."""

# Who did what to which object; bodies would make the log large, and contain secrets.
AUDIT_POLICY: Object = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True)
class User:
    """A user that the API server authenticates by a token. Rights come from RBAC, by user name or group."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)


class CommandError(Exception):
    """kubectl, or another command-line tool, exited with an error; the message has its standard error."""


class ControlPlane:
    """A control plane that runs between `start` and `stop`, or within a `with` block.

    Attributes:
        directory: For all files that the run writes.
        url: Of the API server.
        ca_file: The certificate of the authority that issued the API server's.
        admin_token: The token of a member of system:masters.
        kubeconfig: The admin's.
        audit_log: One JSON event per line for every request, at level Metadata.
        authority: Issues certificates for servers that the API server calls, such as webhooks.
    """

    def __init__(
        self,
        directory: Path,
        *,
        users: Sequence[User] = (),
        custom_resources: Sequence[Path] = (),
        host: str = HOST,
        calls_nodes: bool = False,
    ) -> None:
        """Chooses ports and tokens; nothing is written or started yet.

        Args:
            directory: Created if it does not exist.
            users: Known to the API server in addition to the admin.
            custom_resources: Files or folders with CustomResourceDefinitions.
            host: The IP address of the API server; pods can reach it only if it is not loopback.
            calls_nodes: Whether kubelets and pods can be called from here, for logs and webhooks.
        """
        self.directory = directory.absolute()
        self.users = tuple(users)
        self.custom_resources = tuple(custom_resources)
        self._admin = User("admin", ("system:masters",))
        self._controller_manager = User("system:kube-controller-manager")
        self._etcd_port, self._etcd_peer_port, self._port, self._controller_manager_port = free_ports(4)
        self.host = host
        self.calls_nodes = calls_nodes
        self.url = f"https://{host}:{self._port}"
        self.admin_token = self._admin.token
        self.kubeconfig = self.directory / "kubeconfig"
        self.audit_log = self.directory / "audit.log"
        self._keys = self.directory / "keys"
        self.ca_file = self._keys / "ca.crt"
        self._processes: list[Process] = []
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        """Starts the control plane."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the control plane."""
        self.stop()

    def start(self) -> None:
        """Starts all programs; returns when the API server is ready and the controllers work.

        Raises:
            ToolsUnavailable: The programs do not exist and cannot be built.
            ProcessError: One of them did not start; the message has its last log lines.
        """
        programs = {
            name: binaries.path(name) for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
        }
        self._prepare_directory()
        try:
            self._start_etcd(programs["etcd"])
            self._start_api_server(programs["kube-apiserver"])
            self._define_custom_resources()
            self._start_controller_manager(programs["kube-controller-manager"])
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends all processes, those that depend on others first. Their files are kept."""
        while self._processes:
            self._processes.pop().stop()
        if self._lock is not None:
            self._lock.close()

    def restart(self, name: str) -> None:
        """Kills a program with SIGKILL, restarts it on its existing data, and waits for the API server."""
        os.kill(self.pid_of(name), signal.SIGKILL)
        self._process(name).start_again()
        wait_for("the API server to be ready again", self._is_api_server_ready)

    def revive(self) -> None:
        """Restarts the programs that have exited, as the kubelet of a control plane's machine does."""
        for process in self._processes:
            if process.has_ended:
                process.start_again()

    @property
    def etcd_url(self) -> str:
        """The URL of etcd, which does not authenticate clients."""
        return f"http://{HOST}:{self._etcd_port}"

    def pid_of(self, name: str) -> int:
        """The process id of a program, such as kube-apiserver."""
        return self._process(name).pid

    def _process(self, name: str) -> Process:
        return next(process for process in self._processes if process.name == name)

    @property
    def pids(self) -> list[int]:
        """The ids of the running processes."""
        return [process.pid for process in self._processes]

    @property
    def port(self) -> int:
        """The port of the API server."""
        return self._port

    @property
    def api(self) -> Api:
        """The API, as the admin."""
        return Api(self.url, token=self.admin_token, ca_file=self.ca_file)

    def kubectl(self, *arguments: str | Path, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Runs kubectl; returns its output.

        Args:
            arguments: Of the command.
            stdin: Its standard input, e.g. a manifest for `apply -f -`.
            kubeconfig: Of the user who runs it; default: the admin's.

        Raises:
            CommandError: It exited with an error.
        """
        return self.run_tool("kubectl", *arguments, stdin=stdin, kubeconfig=kubeconfig)

    def run_tool(
        self, name: str, *arguments: str | Path, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> str:
        """Runs one of our programs (kubectl, helm) against this control plane; returns its output."""
        environment = {
            "HOME": str(self.directory),
            "PATH": os.defpath,
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
        }
        command = [binaries.path(name), *arguments]
        result = subprocess.run(command, input=stdin or "", env=environment, capture_output=True, text=True)
        if result.returncode != 0:
            raise CommandError(f"{name} {' '.join(map(str, arguments))}: {result.stderr.strip()}")
        return result.stdout

    def kubeconfig_of_user(self, user: User) -> Path:
        """Writes a kubeconfig for one of `users`; returns its path."""
        kubeconfig = self.directory / f"{user.name.replace(':', '-')}.kubeconfig"
        return write_kubeconfig(kubeconfig, url=self.url, ca_file=self.ca_file, token=user.token)

    def kubeconfig_of_service_account(self, namespace: str, name: str) -> Path:
        """Writes a kubeconfig for a service account, with a new token; returns its path."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = self.api.create(path, {"spec": {"expirationSeconds": TOKEN_SECONDS}})
        return write_kubeconfig(
            self.directory / f"{namespace}-{name}.kubeconfig",
            url=self.url,
            ca_file=self.ca_file,
            token=answer["status"]["token"],
            namespace=namespace,
        )

    def _prepare_directory(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        lock = (self.directory / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            message = f"another control plane runs in {self.directory}; stop it or choose another directory"
            raise FileExistsError(message) from None
        self._lock = lock
        for folder in (self.directory / "etcd", self._keys):
            shutil.rmtree(folder, ignore_errors=True)
        self.audit_log.unlink(missing_ok=True)
        self._keys.mkdir(mode=0o700)
        self.authority = CertificateAuthority(self._keys)
        write_service_account_key(self._keys / "service-account.key")
        self.kubeconfig_of_user(self._controller_manager)
        write_kubeconfig(self.kubeconfig, url=self.url, ca_file=self.ca_file, token=self.admin_token)

    def _start(self, name: str, program: Path, flags: dict[str, object]) -> Process:
        command: list[str | Path] = [program, *(f"--{flag}={value}" for flag, value in flags.items())]
        process = Process(name, command, self.directory / f"{name}.log")
        self._processes.append(process)
        return process

    def _start_etcd(self, program: Path) -> None:
        client_url, peer_url = f"http://{HOST}:{self._etcd_port}", f"http://{HOST}:{self._etcd_peer_port}"
        self._start(
            "etcd",
            program,
            {
                "data-dir": self.directory / "etcd",
                "listen-client-urls": client_url,
                "advertise-client-urls": client_url,
                "listen-peer-urls": peer_url,
                "initial-advertise-peer-urls": peer_url,
                "initial-cluster": f"default={peer_url}",
                "unsafe-no-fsync": "true",  # the data does not outlive the run
                "quota-backend-bytes": DATABASE_BYTES,
            },
        )

    def _start_api_server(self, program: Path) -> None:
        certificate, key = self._keys / "apiserver.crt", self._keys / "apiserver.key"
        self.authority.issue(
            certificate,
            key,
            dns_names=["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"],
            addresses=[self.host, KUBERNETES_SERVICE_IP],
        )
        (self._keys / "tokens.csv").write_text(_token_file([self._admin, self._controller_manager, *self.users]))
        (self.directory / "audit-policy.yaml").write_text(json.dumps(AUDIT_POLICY))
        api_server = self._start(
            "kube-apiserver",
            program,
            {
                # etcd may not be ready yet: the API server retries, so the two start in parallel.
                "etcd-servers": f"http://{HOST}:{self._etcd_port}",
                "bind-address": self.host,
                "advertise-address": self.host,
                "endpoint-reconciler-type": "none",  # endpoints may not be on loopback
                "secure-port": self._port,
                "tls-cert-file": certificate,
                "tls-private-key-file": key,
                "service-cluster-ip-range": SERVICE_ADDRESSES,
                "service-account-issuer": SERVICE_ACCOUNT_ISSUER,
                "service-account-key-file": self._keys / "service-account.key",
                "service-account-signing-key-file": self._keys / "service-account.key",
                "token-auth-file": self._keys / "tokens.csv",
                "authorization-mode": "Node,RBAC",
                # As on OpenShift: to set blockOwnerDeletion, a user needs the right to update the owner's finalizers.
                "enable-admission-plugins": "OwnerReferencesPermissionEnforcement",
                "audit-policy-file": self.directory / "audit-policy.yaml",
                "audit-log-path": self.audit_log,
                "audit-log-maxsize": "100000",  # in MB; after 100 a second file would be begun, and counts with it
                **self._flags_to_call_extensions(),
                **(self._flags_to_call_nodes() if self.calls_nodes else {}),
            },
        )
        api_server.wait_until_ready("a ready API server", self._is_api_server_ready)

    def _flags_to_call_extensions(self) -> dict[str, object]:
        """The flags by which extension API servers trust the user name that the API server forwards to them."""
        certificate, key = self._keys / "front-proxy.crt", self._keys / "front-proxy.key"
        self.authority.issue_to_client(certificate, key, user=FRONT_PROXY, group=FRONT_PROXY)
        return {
            "requestheader-client-ca-file": self.ca_file,
            "requestheader-allowed-names": FRONT_PROXY,
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": certificate,
            "proxy-client-key-file": key,
        }

    def _flags_to_call_nodes(self) -> dict[str, object]:
        certificate, key = self._keys / "kubelet-client.crt", self._keys / "kubelet-client.key"
        self.authority.issue_to_client(certificate, key, user="kube-apiserver", group="system:masters")
        return {
            "kubelet-certificate-authority": self.ca_file,
            "kubelet-client-certificate": certificate,
            "kubelet-client-key": key,
            "kubelet-preferred-address-types": "InternalIP",
            # Webhooks are called at the addresses of their pods: nothing here implements service addresses.
            "enable-aggregator-routing": "true",
        }

    def _is_api_server_ready(self) -> bool:
        try:
            return self.api.text("/readyz") == "ok"
        except (ApiError, urllib.error.URLError, ConnectionError):
            return False

    def _define_custom_resources(self) -> None:
        if not self.custom_resources:
            return
        files = [f"--filename={path}" for path in self.custom_resources]
        # Server-side: large definitions do not fit into the annotation of a client-side apply.
        self.kubectl("apply", "--server-side", *files)
        # Not `kubectl wait`, which fails on a definition that has no conditions yet.
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        wait_for(
            "the custom resources to be served",
            lambda: all(_is_established(definition) for definition in self.api.items(definitions)),
        )

    def _start_controller_manager(self, program: Path) -> None:
        controller_manager = self._start(
            "kube-controller-manager",
            program,
            {
                "kubeconfig": self.kubeconfig_of_user(self._controller_manager),
                "bind-address": HOST,
                "secure-port": self._controller_manager_port,
                "cert-dir": self._keys,
                "leader-elect": "false",
                "root-ca-file": self.ca_file,
                "service-account-private-key-file": self._keys / "service-account.key",
                "use-service-account-credentials": "true",
                # At the default of 20 a second, creating the controllers' service accounts takes most of the start.
                "kube-api-qps": 500,
                "kube-api-burst": 1000,
                # Keeps node objects without a kubelet, whose status nothing renews, as they were created.
                **({} if self.calls_nodes else {"node-monitor-grace-period": "24h"}),
            },
        )
        controller_manager.wait_until_ready(
            "the default service account",
            lambda: self.has_default_service_account("default"),
        )

    def has_default_service_account(self, namespace: str) -> bool:
        """Whether pods can be created there: they need this account, which is created shortly after its namespace."""
        try:
            self.api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Creates a namespace and waits until pods can be created in it."""
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels or {})}})
        wait_for(f"the default service account of namespace {name}", lambda: self.has_default_service_account(name))


def _is_established(definition: Object) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def _token_file(users: Sequence[User]) -> str:
    """The API server's static token file: token, user name, user id, groups."""
    return "".join(f'{user.token},{user.name},{user.name},"{",".join(user.groups)}"\n' for user in users)
