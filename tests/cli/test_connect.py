"""Which cluster the command line talks to, a kubeconfig that does not say, and credentials that do not work."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import kube_config

from tests.fakes import Exchange, HttpServer
from tests.wrong_inputs.files import BOMB
from tools.localcluster.certificates import CertificateAuthority
from tpujob.cluster.client import ApiError, Cluster, UnreachableError
from tpujob.output.errors import CommandError

LOG_IN = "`gcloud auth login`"
INSTALL = "Install gke-gcloud-auth-plugin"
CREDENTIALS = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}


OF_ANOTHER_FORM = (
    "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], "
    "clusters: [{{name: k, cluster: {{server: {}}}}}], users: [{{name: u, user: {}}}]}}"
)


@pytest.mark.parametrize(
    "content",
    [
        "contexts: [", "", "contexts: []", "contexts: " + "[" * 5000, f"contexts: {BOMB}",
        "[]", "3", "contexts: abc", "contexts: [{}]", "contexts: [1]", OF_ANOTHER_FORM.format(3, "{}"),
        OF_ANOTHER_FORM.format("'http://a'", "{token: ☃}"), OF_ANOTHER_FORM.format("'http://a'", r'{token: "a\nb"}'),
        OF_ANOTHER_FORM.format("'http://a'", "abc"),
        OF_ANOTHER_FORM.format("'http://a', proxy-url: '::::'", "{}"),
    ],
    ids=[
        "no YAML", "empty", "no context", "deep", "aliases of aliases", "a list", "a number", "text for contexts",
        "empty context", "a number for a context", "a number for a server", "a token that no header holds",
        "a token of two lines", "text for a user", "no address of a proxy",
    ],
)  # fmt: skip
def test_a_kubeconfig_that_cannot_be_used_is_told(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    with pytest.raises(CommandError, match="set KUBECONFIG, or make"):
        Cluster.connect()


class Gke:
    """A TLS server that answers as an API server does, and the kubeconfig with an auth plugin for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = CertificateAuthority(folder)
        authority.issue(folder / "server.crt", folder / "server.key", dns_names=[], addresses=["127.0.0.1"])
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(folder / "server.crt", folder / "server.key")
        self.asked: list[str | None] = []
        self.server = HttpServer(self._answer, tls=tls)

    def _answer(self, exchange: Exchange) -> None:
        token = exchange.headers.get("Authorization")
        self.asked.append(token)
        status, body = (200, '{"items": [], "metadata": {}}') if token == "Bearer good" else (401, '{"message": "no"}')
        exchange.reply(status, body.encode())

    def connect(self, plugin: str | None, authority: str = "ca.crt") -> Cluster:
        if plugin is not None:
            (self.folder / "gke-gcloud-auth-plugin").write_text(f"#!/bin/sh\n{plugin}\n")
            (self.folder / "gke-gcloud-auth-plugin").chmod(0o755)
        user: dict[str, Any] = {
            "exec": {
                "apiVersion": CREDENTIALS["apiVersion"],
                "command": str(self.folder / "gke-gcloud-auth-plugin"),
                "installHint": f"{INSTALL} for\nuse with kubectl",
            }
        }
        cluster = {"server": self.server.url, "certificate-authority": str(self.folder / authority)}
        content = {
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        (self.folder / "config").write_text(json.dumps(content))
        return Cluster.connect()


@pytest.fixture
def gke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gke]:
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    gke = Gke(tmp_path)
    with gke.server:
        yield gke


def gives(token: str) -> str:
    return f"echo '{json.dumps({**CREDENTIALS, 'status': {'token': token}})}'"


def test_the_token_of_a_plugin_is_sent(gke: Gke) -> None:
    cluster = gke.connect(gives("good"))
    assert (list(cluster.jobs()), cluster.namespace, cluster.context) == ([], "default", "c")


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        ("echo 'Reauthentication failed' >&2; exit 1", ["returned 1. Reauthentication failed", LOG_IN]),
        (None, ["No such file", f"{INSTALL} for use with kubectl"]),
        ("echo no JSON", ["failed to decode process output", LOG_IN]),
        (f"echo '{json.dumps({**CREDENTIALS, 'status': {}})}'", ["missing token", LOG_IN]),
    ],
    ids=["logged out", "missing", "no JSON", "no token"],
)
def test_a_plugin_that_fails_is_the_error_and_nothing_is_sent(
    plugin: str | None, expected: list[str], gke: Gke, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CommandError) as caught:
        gke.connect(plugin)
    assert all(words in str(caught.value) for words in ["no credentials", "gke-gcloud-auth-plugin", *expected])
    assert not gke.asked
    assert not caplog.records


def test_a_plugin_that_fails_on_a_terminal_has_said_why_there(gke: Gke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with Path("/dev/null").open() as nothing, (gke.folder / "terminal").open("w") as terminal:
        monkeypatch.setattr("sys.stdin", nothing)
        monkeypatch.setattr("sys.stderr", terminal)
        with pytest.raises(CommandError, match=r"its words are above; log in again"):
            gke.connect("echo 'Reauthentication failed' >&2; exit 1")
        assert (gke.folder / "terminal").read_text() == "Reauthentication failed\n"


def test_a_refused_token_says_how_to_renew_it(gke: Gke) -> None:
    with pytest.raises(ApiError, match=f"401: no; the cluster does not know you: log in again .*{LOG_IN}"):
        gke.connect(gives("old")).jobs()
    assert LOG_IN in str(ApiError("get", 403, 'User "system:anonymous" cannot list'))
    assert "needs that right" in str(ApiError("get", 403, 'User "me" cannot list'))


def test_a_certificate_that_is_not_trusted_is_no_fault_of_the_network(gke: Gke, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    CertificateAuthority(tmp_path / "other")
    with pytest.raises(CommandError, match=r"certificate of https://.* is not trusted: .*get-credentials") as caught:
        gke.connect(gives("good"), authority="other/ca.crt").jobs()
    assert not isinstance(caught.value, UnreachableError)  # which is asked again
    gke.server.close()
    with pytest.raises(UnreachableError, match="check the network"):
        gke.connect(gives("good")).jobs()
