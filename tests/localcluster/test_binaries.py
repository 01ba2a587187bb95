"""Programs come from where they should, and what is missing is said."""

import re
from pathlib import Path

import pytest

from tools.localcluster import binaries, toolchain
from tools.localcluster.toolchain import Go, ToolBuildError, ToolsUnavailable


@pytest.fixture
def no_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr(binaries, "find_go", toolchain.find_go.__wrapped__)


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(binaries, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("etcd", "v3.7.3"),
        ("kube-apiserver", "v1.37.2"),
        ("kubectl", "v1.37.2"),
        ("jobset", "v0.12.0"),
        ("helm", "v3.22.0"),
    ],
)
def test_versions_are_those_of_go_mod(name: str, version: str) -> None:
    assert binaries.PROGRAMS[name].version == version


def test_kubebuilder_assets_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    assert binaries.path("etcd") == tmp_path / "etcd"


@pytest.mark.usefixtures("no_go", "empty_cache")
def test_nothing_built_and_no_go_is_unavailable() -> None:
    with pytest.raises(ToolsUnavailable, match=r"Go 1\.26 or newer is needed"):
        binaries.path("etcd")


@pytest.mark.usefixtures("no_go")
def test_what_was_built_needs_no_go(empty_cache: Path) -> None:
    program = binaries.PROGRAMS["helm"]
    (empty_cache / "bin").mkdir(parents=True)
    (empty_cache / "bin" / "helm").touch()
    (empty_cache / "bin" / "helm.stamp").write_text(f"{program.inputs_hash()} go1.26.0\n")

    assert binaries.path("helm") == empty_cache / "bin" / "helm"


@pytest.mark.usefixtures("no_go")
def test_other_inputs_make_it_stale(empty_cache: Path) -> None:
    (empty_cache / "bin").mkdir(parents=True)
    (empty_cache / "bin" / "helm").touch()
    (empty_cache / "bin" / "helm.stamp").write_text("0000 go1.26.0\n")

    with pytest.raises(ToolsUnavailable):
        binaries.path("helm")


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("dial tcp 203.0.113.1:443: connect: connection refused", ToolsUnavailable),
        ("lookup example.invalid: no such host", ToolsUnavailable),
        ("module lookup disabled by GOPROXY=off", ToolsUnavailable),
        ("SECURITY ERROR: checksum mismatch", ToolBuildError),
        ("main.go:3:1: syntax error", ToolBuildError),
    ],
)
def test_only_a_missing_network_is_no_failure(tmp_path: Path, message: str, error: type[Exception]) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho '{message}' >&2\nexit 1\n")
    go.chmod(0o755)

    with pytest.raises(error, match=re.escape(message)):
        Go(go, "go1.26.0").run(["build"], directory=tmp_path)
