"""The programs of the clusters, built on first use and kept.

- `programs/` has one Go module per upstream project; its go.mod pins the version and its go.sum the content.
- A program is rebuilt when its module, the flags or the Go version change: a stamp file beside it has the hash of the
  inputs and the Go version. A machine without Go can use what was built before.
- Programs in the folder KUBEBUILDER_ASSETS, if that is set, are used instead.
"""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.localcluster import kept
from tools.localcluster.toolchain import Go, ToolsUnavailable, find_go

MODULES = Path(__file__).with_name("programs")
CACHE = kept.FOLDER / "tools"


@dataclass(frozen=True)
class Program:
    """A program and its source."""

    name: str
    module: str
    """The folder in programs/."""
    package: str
    """The Go package of its main function."""
    version_of: str | None = None
    """The Go module whose version it has; None: the source is in programs/ itself."""
    tags: tuple[str, ...] = ()
    """Go's build tags."""
    files: str | None = None
    """A folder of that module which is used with it, such as its Helm chart."""

    @property
    def version(self) -> str:
        """The version that go.mod requires, e.g. `v1.37.2`; `local` for one of our programs."""
        if self.version_of is None:
            return "local"
        match = re.search(
            rf"^\s*(?:require )?{re.escape(self.version_of)} (v\S+)",
            self._module_file("go.mod").read_text(),
            re.MULTILINE,
        )
        if match is None:
            raise ValueError(f"{self._module_file('go.mod')} does not require {self.version_of}")
        return match.group(1)

    @property
    def build_flags(self) -> list[str]:
        """The flags of `go build`: a reproducible, small binary that reports its version if clients ask for it."""
        linker_flags = ["-s", "-w"]
        if self.module == "kubernetes":
            major, minor, _ = self.version.removeprefix("v").split(".")
            settings = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
            linker_flags += [f"-X k8s.io/component-base/version.{key}={value}" for key, value in settings.items()]
        tags = [f"-tags={','.join(self.tags)}"] if self.tags else []
        return ["-mod=readonly", "-trimpath", "-buildvcs=false", *tags, "-ldflags", " ".join(linker_flags)]

    def inputs_hash(self) -> str:
        """A hash of everything that determines the binary, except the Go version."""
        digest = hashlib.sha256()
        for content in (self._module_file("go.mod"), self._module_file("go.sum"), *self._own_sources()):
            digest.update(content.read_bytes())
        digest.update(repr((self.package, self.files, self.build_flags)).encode())
        return digest.hexdigest()

    def _module_file(self, name: str) -> Path:
        return MODULES / self.module / name

    def _own_sources(self) -> list[Path]:
        return sorted((MODULES / self.module).glob("*.go"))


def _kubernetes(name: str) -> Program:
    return Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", "k8s.io/kubernetes")


PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kubectl"),
        Program("jobset", "jobset", "sigs.k8s.io/jobset", "sigs.k8s.io/jobset", files="charts/jobset"),
        Program("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue", "sigs.k8s.io/kueue", files="charts/kueue"),
        Program(
            "kubeflow-trainer",
            "kubeflow-trainer",
            "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
            "github.com/kubeflow/trainer/v2",
            files="manifests",
        ),
        Program("helm", "helm", "helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v3"),
        _kubernetes("kube-scheduler"),
        _kubernetes("kubelet"),
        Program("coredns", "coredns", "github.com/coredns/coredns", "github.com/coredns/coredns"),
        Program(
            "fake-gcs-server",
            "fake-gcs-server",
            "github.com/fsouza/fake-gcs-server",
            "github.com/fsouza/fake-gcs-server",
        ),
        Program(
            "prometheus",
            "prometheus",
            "github.com/prometheus/prometheus/cmd/prometheus",
            "github.com/prometheus/prometheus",
            # Only Kubernetes service discovery: the other kinds are half of the binary.
            tags=("remove_all_sd", "enable_kubernetes_sd"),
        ),
        Program(
            "promtool",
            "prometheus",
            "github.com/prometheus/prometheus/cmd/promtool",
            "github.com/prometheus/prometheus",
            tags=("remove_all_sd", "enable_kubernetes_sd"),
        ),
        Program(
            "kubeconform", "kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform", "github.com/yannh/kubeconform"
        ),
        Program(
            "actionlint",
            "actionlint",
            "github.com/rhysd/actionlint/cmd/actionlint",
            "github.com/rhysd/actionlint",
        ),
        Program("pause", "pause", "tpujob.dev/localcluster/pause"),
    )
}
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "jobset", "helm")
"""For a cluster without a node."""
CHECKERS = ("promtool", "kubeconform", "actionlint")
"""With which tests check rules, queries, rendered charts and workflows."""
QUEUE = ("kueue", "kube-scheduler")
"""What a cluster without a node also needs, for queued jobs."""
NODE = (*CONTROL_PLANE, "kube-scheduler", "kubelet", "coredns", "fake-gcs-server", "prometheus", "pause")
"""For a cluster with a node."""


def path(name: str) -> Path:
    """The path of a program, which is built now unless it is up to date.

    Raises:
        ToolsUnavailable: There is no Go, or no network to fetch its source.
        ToolBuildError: It does not build.
    """
    found = _find(name)
    if found is not None:
        return found
    program = PROGRAMS[name]
    with kept.exclusively(CACHE):
        # Another process may have built it while this one waited.
        if not _is_current(program):
            _build(program, find_go())
    return _binary(program)


def build_all(announce: Callable[[str], object], names: Sequence[str] = CONTROL_PLANE) -> None:
    """Builds the programs that are missing or out of date, and calls `announce` before each: which, how many, and
    how long it has taken.

    Raises:
        ToolsUnavailable: There is no Go, or no network to fetch their source.
        ToolBuildError: One does not build.
    """
    missing = [name for name in names if _find(name) is None]
    begin = time.monotonic()
    for number, name in enumerate(missing, start=1):
        minutes, seconds = divmod(round(time.monotonic() - begin), 60)
        announce(f"building {name} {PROGRAMS[name].version}, {number} of {len(missing)}, after {minutes}:{seconds:02}")
        path(name)


def files(name: str) -> Path:
    """A copy of the folder that upstream ships with the program, such as its Helm chart."""
    path(name)
    return _files(PROGRAMS[name])


def _find(name: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and (Path(assets) / name).is_file():
        return Path(assets) / name
    return _binary(PROGRAMS[name]) if _is_current(PROGRAMS[name]) else None


def _binary(program: Program) -> Path:
    return CACHE / "bin" / program.name


def _files(program: Program) -> Path:
    return CACHE / "share" / program.name


def _stamp(program: Program) -> Path:
    return CACHE / "bin" / f"{program.name}.stamp"


def _is_current(program: Program) -> bool:
    try:
        inputs_hash, go_version = _stamp(program).read_text().split()
    except FileNotFoundError:
        return False
    if inputs_hash != program.inputs_hash() or not _binary(program).exists():
        return False
    try:
        return go_version == find_go().version
    except ToolsUnavailable:
        return True


def _build(program: Program, go: Go) -> None:
    _stamp(program).unlink(missing_ok=True)
    _binary(program).parent.mkdir(parents=True, exist_ok=True)
    directory = MODULES / program.module
    # Fetches before it builds: without a network, the error comes from here rather than from the build.
    flags = program.build_flags
    go.run(["list", "-deps", "-f", "{{/* nothing */}}", *flags, program.package], directory=directory)
    unfinished = CACHE / "bin" / f"{program.name}.unfinished"
    go.run(["build", *flags, "-o", str(unfinished), program.package], directory=directory)
    if program.files is not None:
        _copy_files(program, go)
    unfinished.replace(_binary(program))
    _stamp(program).write_text(f"{program.inputs_hash()} {go.version}\n")


def _copy_files(program: Program, go: Go) -> None:
    """Copies the folder out of Go's module cache, where files are read-only, so that later runs need no Go."""
    source = Path(
        go.run(["list", "-m", "-f", "{{.Dir}}", str(program.version_of)], directory=MODULES / program.module).strip()
    )
    target = _files(program)
    if target.exists():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source / str(program.files), target, copy_function=shutil.copyfile)
    for directory in (target, *(child for child in target.rglob("*") if child.is_dir())):
        directory.chmod(0o755)
