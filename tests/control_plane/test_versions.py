"""Both versions of the API, and running jobs through an upgrade, its rollback and a second upgrade.

`make upgrade` plays it with 50 jobs, which takes minutes.
The operator and the definition of before are those of 0.1 (tests/released), which knows v1alpha1 alone.
"""

import contextlib
import functools
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.control_plane.reporting import REPORT_ADDRESS, reporting
from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess, grant_rights
from tools.localcluster import pods
from tools.localcluster.api import Api, Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import JobSetController, jobset_custom_resources
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names

pytestmark = [pytest.mark.control_plane, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
RELEASED = ROOT / "tests" / "released"
(CHART_BEFORE,) = (ROOT / "tests" / "e2e" / "charts").glob("*.tgz")
DEFINITION_FILE = "tpujob-operator/crd/tputrainingjobs.yaml"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tputrainingjobs.tpujob.dev"
OLD, NEW = kubernetes_names.API_VERSION, kubernetes_names.NEWEST_API_VERSION
JOBS_OF_EACH_VERSION = int(os.environ.get("UPGRADE_JOBS", "4"))
BOOKS = ("phase", "incarnation", "restarts", "crashes", "disruptions", "unexplainedRestarts", "specHash", "startTime")
PATIENCE_SECONDS = 240


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """What 0.1 had: the definition, and below `src` the operator."""
    with tarfile.open(CHART_BEFORE) as chart:
        chart.extract(DEFINITION_FILE, tmp_path / "before", filter="data")
    with tarfile.open(RELEASED / "operator-0.1.tar.xz") as sources:
        sources.extractall(tmp_path / "before" / "src", filter="data")
    return tmp_path / "before"


@pytest.fixture
def jobs(tmp_path: Path, before: Path) -> Iterator[Jobs]:
    """The jobs of a control plane of its own, which has the definition of before."""
    definitions = [jobset_custom_resources(), before / DEFINITION_FILE]
    with ControlPlane(tmp_path / "plane", custom_resources=definitions) as plane, JobSetController(plane):
        grant_rights(plane)
        plane.create_namespace("training")
        yield Jobs(plane, "training")


def test_upgrade_rollback_and_upgrade_restart_nothing(jobs: Jobs, before: Path, tmp_path: Path) -> None:
    sources = ":".join(str(before / "src" / part / "src") for part in ("contract", "operator"))
    now = OperatorProcess(jobs.plane, tmp_path / "now")
    then = OperatorProcess(jobs.plane, tmp_path / "then", PYTHONPATH=sources)
    report: dict[str, Any] = {"phase": "training", "step": 10, "steps": 10_000, "loss": 2.0, "committed_step": 5}
    report["committed_time"] = 1_893_499_260
    watched = Watched(jobs)
    with reporting(report), contextlib.ExitStack() as stack:
        stack.callback(now.stop)
        stack.callback(then.stop)
        start(then)
        apply(jobs, "old", OLD)
        run(jobs, "old")
        watched.reach(10, JOBS_OF_EACH_VERSION)

        then.stop()
        define(jobs.plane, ROOT / "charts" / DEFINITION_FILE)
        start(now)
        apply(jobs, "new", NEW)
        run(jobs, "new")
        report["step"] = 20
        watched.reach(20, 2 * JOBS_OF_EACH_VERSION)
        assert versions(jobs.api) == ({"v1alpha1", "v1beta1"}, ["v1alpha1"])

        now.stop()
        define(jobs.plane, before / DEFINITION_FILE)
        start(then)
        report["step"] = 30
        watched.reach(30, 2 * JOBS_OF_EACH_VERSION)
        assert versions(jobs.api) == ({"v1alpha1"}, ["v1alpha1"])
        # Who wrote it as v1beta1 goes on with v1alpha1; a suspension is heard, and is no restart.
        apply(jobs, "new", OLD, count=1, suspend=True)
        jobs.wait_phase("new-0", "Suspended")
        watched.forget("new-0")

        then.stop()
        define(jobs.plane, ROOT / "charts" / DEFINITION_FILE)
        start(now)
        report["step"] = 40
        watched.reach(40, 2 * JOBS_OF_EACH_VERSION - 1)
        for name in ("old-0", "new-1"):
            jobs.api.delete(f"{jobs.path}/{name}")
            wait_for(f"the JobSet of {name} to go", functools.partial(is_gone, jobs, name))


def start(operator: OperatorProcess) -> None:
    operator.start()
    operator.wait_until_ready()


def is_gone(jobs: Jobs, name: str) -> bool:
    return jobs.jobset(name) is None


def define(plane: ControlPlane, file: Path) -> None:
    """Puts a definition in the place of the one that is there, as an upgrade or a rollback does."""
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(file))
    wanted = {each["name"] for each in yaml.safe_load(file.read_text())["spec"]["versions"]}

    def served() -> bool:
        (group,) = (each for each in plane.api.get("/apis")["groups"] if each["name"] == kubernetes_names.GROUP)
        return {each["version"] for each in group["versions"]} == wanted

    wait_for("the versions to be served", served)


def versions(api: Api) -> tuple[set[str], list[str]]:
    """Those that are served, and those in which anything may be stored."""
    definition = api.get(DEFINITION)
    served = {each["name"] for each in definition["spec"]["versions"] if each["served"]}
    return served, definition["status"]["storedVersions"]


def apply(jobs: Jobs, prefix: str, version: str, count: int = JOBS_OF_EACH_VERSION, **fields: Any) -> None:
    """Writes jobs as a person does."""
    spec = {"accelerator": "cpu:1x1", "image": "example.com/image", "command": ["train"], **fields}
    kind = {"apiVersion": version, "kind": kubernetes_names.KIND}
    made = [{**kind, "metadata": {"name": f"{prefix}-{number}"}, "spec": spec} for number in range(count)]
    written = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    output = jobs.plane.kubectl("apply", "--server-side", "-n", jobs.namespace, "-f", "-", stdin=written)
    assert output.count("serverside-applied") == count


def run(jobs: Jobs, prefix: str) -> None:
    """Plays the pods of jobs as running."""
    for number in range(JOBS_OF_EACH_VERSION):
        for pod in jobs.wait_pods(f"{prefix}-{number}", 1):
            pods.set_running(jobs.api, pod, pod_ip=REPORT_ADDRESS)


class Watched:
    """Jobs that may go forward, and nothing else."""

    def __init__(self, jobs: Jobs) -> None:
        """Knows none yet."""
        self._jobs = jobs
        self._forgotten: set[str] = set()
        self._first: dict[str, Object] = {}
        self._steps: dict[str, int] = {}

    def forget(self, name: str) -> None:
        """Has no more to say about a job."""
        self._forgotten.add(name)

    def reach(self, step: int, count: int) -> None:
        """Returns when that many jobs are at a step; no step may go back, and nothing else change, on the way."""
        wait_for(f"{count} jobs at {step}", lambda: self._look(step) >= count, timeout_seconds=PATIENCE_SECONDS)

    def _look(self, step: int) -> int:
        jobsets = self._named(f"/apis/{kubernetes_names.JOBSET_API_VERSION}", "jobsets")
        found = {pod["metadata"]["labels"][kubernetes_names.JOBSET_NAME]: pod for pod in self._pods()}
        arrived = 0
        for name, job in self._named(f"/apis/{OLD}", kubernetes_names.PLURAL).items():
            if name in self._forgotten:
                continue
            status = job.get("status") or {}
            assert status.get("step", 0) >= self._steps.get(name, 0), name
            self._steps[name] = status.get("step", 0)
            if status.get("step", 0) < step:
                continue
            assert (status["lastCheckpointStep"], status["ready"]) == (5, "1/1")
            jobset, pod = jobsets[name]["metadata"], found[name]["metadata"]
            seen = {key: status.get(key) for key in BOOKS} | {
                "generation": job["metadata"]["generation"],
                "jobset": (jobset["uid"], jobset["generation"]),
                "pod": pod["uid"],
            }
            assert seen == self._first.setdefault(name, seen), name
            arrived += 1
        return arrived

    def _named(self, group: str, plural: str) -> dict[str, Object]:
        items = self._jobs.api.items(f"{group}/namespaces/{self._jobs.namespace}/{plural}")
        return {each["metadata"]["name"]: each for each in items}

    def _pods(self) -> list[Object]:
        return list(self._jobs.api.items(f"/api/v1/namespaces/{self._jobs.namespace}/pods"))
