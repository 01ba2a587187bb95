"""One tenant does the worst that its rights allow, beside honest jobs.

python -m tests.nights.hostile --seed 1 --minutes 60

The operator runs with the chart's policies in force and, where memory groups can be made (root), under the chart's
memory limit. The tenant is an administrator of its namespaces, and may also write JobSets and the status of jobs.
Exits with 1 if a step of an honest job came later than LATE_SECONDS, or if the operator did not stay ready, or wrote
more than WRITES_PER_CHANGE.
"""

import argparse
import functools
import itertools
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.charts import rendered
from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess, grant_rights
from tests.nights.observer import LOST
from tests.nights.stage import CRD
from tests.scenes.control_plane.requests_made import requests_made
from tools.localcluster import binaries
from tools.localcluster.api import Api, ApiError, Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import JobSetController, jobset_custom_resources
from tpujob_contract import kubernetes_names as names
from tpujob_resource.models.decoding import MAX_LEVELS, MAX_SPEC_BYTES

LATE_SECONDS = 5.0
LONGEST_SECONDS, LOOK_SECONDS = 60.0, 0.1
LIMIT_BYTES = 512 * 2**20
"""Of the operator's memory in the chart."""
WRITES_PER_CHANGE = 4
"""Most writes of the operator, for each request of the tenant that changed something."""
HONEST, NAMESPACES, KEPT = 10, 20, 1000
"""Honest namespaces; the tenant's, and how many of its largest jobs stay there."""
TENANT = "mallory"
GROUPS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
say = functools.partial(print, flush=True)
NONSENSE: list[Any] = ["Succeeded", "", "z" * 4000, 0, -1, 2**53, True, None, [], {}, {"a": []}, ["\u0000", "é" * 500]]
"""What a field of a status or report may be set to."""


@dataclass
class Findings:
    """What was measured."""

    latencies: list[tuple[float, str]] = field(default_factory=list)
    """Seconds and which step of which job."""
    changes: int = 0
    """Requests of the tenant that the API server took."""
    acts: Counter[str] = field(default_factory=Counter)
    """What the tenant did, by name, and ` refused` where the API server did not take it."""

    def refused(self, act: str, error: ApiError) -> None:
        """Counts what the API server did not take, and says why once."""
        key = f"{act} refused"
        if key not in self.acts:
            say(f"  {key}: {str(error)[:300]}")
        self.acts[key] += 1

    @property
    def late(self) -> list[tuple[float, str]]:
        """Steps of honest jobs that came too late, the latest first."""
        return sorted((each for each in self.latencies if each[0] > LATE_SECONDS), reverse=True)


class Tenant:
    """Who may do what they like in some namespaces."""

    def __init__(self, api: Api, namespaces: list[str], seed: int, findings: Findings) -> None:
        """Keeps where; nothing is done yet."""
        self._as_tenant, self._namespaces = api, namespaces
        self._numbers, self._findings = itertools.count(), findings
        self._random = random.Random(seed)  # noqa: S311
        self._acts: tuple[Callable[[str, str], None], ...] = (
            self._large,
            self._deep,
            self._many_fields,
            self._churn,
            self._labels,
            self._forged_pod,
            self._large_pod,
            self._forged_jobset,
            self._stolen_name,
            self._status,
            self._events,
            self._policy,
        )

    def act(self) -> None:
        """Does one thing."""
        act = self._random.choice(self._acts)
        name = f"{act.__name__.strip('_').replace('_', '-')}-{next(self._numbers)}"
        try:
            act(self._random.choice(self._namespaces), name)
            self._findings.acts[act.__name__.strip("_")] += 1
        except ApiError as error:
            self._findings.refused(act.__name__.strip("_"), error)
        except LOST:
            self._findings.acts["unanswered"] += 1

    def _change(self, request: Callable[..., object], *arguments: Any) -> None:
        request(*arguments)
        self._findings.changes += 1

    def fill(self) -> None:
        """Makes as many of the largest jobs as its quota might allow."""
        for number in range(KEPT):
            self._large(self._namespaces[number % len(self._namespaces)], f"kept-{number}")

    def _create(self, namespace: str, name: str, metadata: Mapping[str, Any] = {}, **spec: Any) -> None:
        fields = {"accelerator": "cpu:2x1", "image": "example.com/i", "command": ["x"], **spec}
        body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name, **metadata}}
        kept = {key: value for key, value in fields.items() if value is not None}
        self._change(self._as_tenant.create, _path(names.API_VERSION, namespace, names.PLURAL), {**body, "spec": kept})

    def _trainer(self, value: Any) -> Object:
        model = {"custom": "a:B", "arguments": {"a": value}}
        data = {"path": "gs://bucket/x/*.parquet", "tokenizer": "bytes"}
        return {"image": None, "command": None, "trainer": {"model": model, "data": data, "steps": 10}}

    def _large(self, namespace: str, name: str) -> None:
        self._create(namespace, name, suspend=True, **self._trainer("z" * (MAX_SPEC_BYTES - 1000)))

    def _deep(self, namespace: str, name: str) -> None:
        value: Any = 1
        for _ in range(self._random.choice((MAX_LEVELS - 3, MAX_LEVELS + 1, 300))):
            value = [value]
        self._create(namespace, name, **self._trainer(value))

    def _many_fields(self, namespace: str, name: str) -> None:
        self._create(namespace, name, **self._trainer({f"k{number}": number for number in range(3000)}))

    def _churn(self, namespace: str, name: str) -> None:
        for _ in range(5):
            self._create(namespace, name)
            self._change(self._as_tenant.delete, f"{_path(names.API_VERSION, namespace, names.PLURAL)}/{name}")

    def _labels(self, namespace: str, name: str) -> None:
        metadata = {"labels": {names.JOB_NAME: "honest-0"}, "annotations": {f"a{n}": "z" * 5000 for n in range(40)}}
        self._create(namespace, name, metadata)

    def _pod(self, name: str, **metadata: Any) -> Object:
        labels = {names.JOB_NAME: "honest-0", names.JOBSET_UID: "0", names.RESTART_ATTEMPT: "9" * 60}
        spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
        return {"metadata": {"name": name, "labels": labels, **metadata}, "spec": spec}

    def _forged_pod(self, namespace: str, name: str) -> None:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "honest-0-w-0", "uid": name, "controller": True}
        self._change(
            self._as_tenant.create, f"/api/v1/namespaces/{namespace}/pods", self._pod(name, ownerReferences=[owner])
        )

    def _large_pod(self, namespace: str, name: str) -> None:
        pod = self._pod(name, annotations={f"a{number}": "z" * 6000 for number in range(40)})
        pod["spec"]["containers"][0]["env"] = [{"name": f"E{number}", "value": "z" * 1000} for number in range(900)]
        self._change(self._as_tenant.create, f"/api/v1/namespaces/{namespace}/pods", pod)

    def _forged_jobset(self, namespace: str, name: str) -> None:
        owner = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": "honest-0",
            "uid": name,
            "controller": True,
        }
        self._create_jobset(namespace, name, {"ownerReferences": [owner], "labels": {names.JOB_NAME: "honest-0"}})

    def _stolen_name(self, namespace: str, name: str) -> None:
        """A JobSet where the operator wants to put one."""
        self._create_jobset(namespace, name, {})
        self._create(namespace, name)

    def _create_jobset(self, namespace: str, name: str, metadata: Object) -> None:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
        job = {"name": "w", "replicas": 1, "template": {"spec": {"suspend": True, "template": template}}}
        path = _path(names.JOBSET_API_VERSION, namespace, names.JOBSET_PLURAL)
        kind = {"apiVersion": names.JOBSET_API_VERSION, "kind": "JobSet"}
        spec = {"replicatedJobs": [job], "suspend": True}
        self._change(self._as_tenant.create, path, {**kind, "metadata": {"name": name, **metadata}, "spec": spec})

    def _status(self, namespace: str, name: str) -> None:
        self._create(namespace, name)
        path = f"{_path(names.API_VERSION, namespace, names.PLURAL)}/{name}/status"
        known = ("phase", "message", "incarnation", "step", "hosts", "conditions", "restarts", "internal", "failure")
        for key in self._random.sample(known, 3):
            value = self._random.choice(NONSENSE)
            try:
                self._change(
                    self._as_tenant.patch,
                    path,
                    {"status": {key: value if self._random.random() < 0.5 else {"a": value}}},
                )
            except ApiError as error:
                self._findings.refused("status", error)

    def _events(self, namespace: str, name: str) -> None:
        about = {"kind": names.KIND, "name": "honest-0", "namespace": namespace, "apiVersion": names.API_VERSION}
        body = {"metadata": {"name": name}, "involvedObject": about, "reason": "R", "type": "Warning"}
        self._change(self._as_tenant.create, f"/api/v1/namespaces/{namespace}/events", {**body, "message": "z" * 1000})

    def _policy(self, namespace: str, name: str) -> None:
        path = _path("networking.k8s.io/v1", namespace, "networkpolicies")
        self._change(
            self._as_tenant.create, path, {"metadata": {"name": names.child_name(name)}, "spec": {"podSelector": {}}}
        )
        self._create(namespace, name)


def honest_job(jobs: Jobs, findings: Findings, ends: threading.Event) -> None:
    """One job after the other: created, suspended, resumed, deleted; how long the operator took for each step."""

    def follow(what: str, name: str, *, suspended: bool) -> None:
        began = time.monotonic()
        while time.monotonic() - began < LONGEST_SECONDS:
            jobset = jobs.jobset(name)
            if jobset is not None and bool(jobset["spec"].get("suspend")) is suspended:
                break
            time.sleep(LOOK_SECONDS)
        findings.latencies.append((time.monotonic() - began, f"{what} of {jobs.namespace}/{name}"))

    for number in itertools.count():
        name = f"honest-{number}"
        jobs.create(name)
        follow("creation", name, suspended=False)
        jobs.patch(name, suspend=True)
        follow("suspension", name, suspended=True)
        jobs.patch(name, suspend=False)
        follow("resumption", name, suspended=False)
        jobs.api.delete(f"{jobs.path}/{name}")
        if ends.wait(1.0):
            return


@contextmanager
def bounded_memory(pid: int) -> Iterator[Callable[[], int] | None]:
    """Holds a process to LIMIT_BYTES; gives its peak in bytes. None: no memory group can be made here."""
    for root, limit, peak in zip(
        GROUPS, ("memory.limit_in_bytes", "memory.max"), ("memory.max_usage_in_bytes", "memory.peak"), strict=True
    ):
        group = root / f"tpujob-hostile-{pid}"
        try:
            group.mkdir()
            (group / limit).write_text(str(LIMIT_BYTES))
            (group / "cgroup.procs").write_text(str(pid))
        except OSError:
            continue
        yield lambda group=group, peak=peak: int((group / peak).read_text())  # type: ignore[misc]
        return
    yield None


def play(seed: int, seconds: float, per_second: float) -> bool:
    """Whether everything held; what was found is printed."""
    findings, ends = Findings(), threading.Event()
    with TemporaryDirectory() as folder, ExitStack() as stack:
        definitions = [jobset_custom_resources(), CRD]
        plane = stack.enter_context(ControlPlane(Path(folder) / "plane", custom_resources=definitions))
        stack.enter_context(JobSetController(plane))
        grant_rights(plane)
        policy = [found for found in rendered.render() if found["kind"].startswith("ValidatingAdmissionPolicy")]
        plane.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": policy}))
        own, honest = [f"bad-{number}" for number in range(NAMESPACES)], [f"good-{number}" for number in range(HONEST)]
        for namespace in (*own, *honest):
            plane.create_namespace(namespace)
        _grant(plane, own)
        tenant = Tenant(plane.api.acting_as(TENANT), own, seed, findings)
        say(f"{KEPT} jobs of {MAX_SPEC_BYTES - 1000} bytes in {NAMESPACES} namespaces ...")
        tenant.fill()
        operator = OperatorProcess(plane, Path(folder) / "operator")
        operator.start()
        stack.callback(operator.stop)
        assert operator.process is not None
        pid = operator.process.pid
        peak = stack.enter_context(bounded_memory(pid))
        operator.wait_until_ready()
        threads = [threading.Thread(target=honest_job, args=(Jobs(plane, name), findings, ends)) for name in honest]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic()
            tenant.act()
            time.sleep(max(0.0, 1 / per_second - (time.monotonic() - began)))
        ends.set()
        for thread in threads:
            thread.join()
        lives = operator.is_running() and operator.process.pid == pid and operator.get("/readyz")[0] == 200
        used = peak() if peak is not None else None
        writes = sum(request.is_write for name in own for request in requests_made(plane.audit_log, name))
    return told(findings, lives=lives, used=used, writes=writes)


def _grant(plane: ControlPlane, namespaces: list[str]) -> None:
    more = [
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["*"]},
        {"apiGroups": [names.GROUP], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["*"]},
    ]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": TENANT},
        "rules": more,
    }
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(role))
    for namespace in namespaces:
        for name in ("admin", TENANT):
            plane.kubectl("create", "rolebinding", name, f"--clusterrole={name}", f"--user={TENANT}", "-n", namespace)


def told(findings: Findings, *, lives: bool, used: int | None, writes: int) -> bool:
    """Prints what was found; whether everything held."""
    latencies = sorted(seconds for seconds, _ in findings.latencies)
    for what, count in sorted(findings.acts.items()):
        say(f"  {what}: {count}")
    median = latencies[len(latencies) // 2]
    say(f"honest jobs: {len(latencies)} steps, median {median:.2f} s, last {latencies[-1]:.2f} s")
    for seconds, what in findings.late[:10]:
        say(f"  LATE: {what}: {seconds:.1f} s")
    say(f"the operator {'is the same process, and ready' if lives else 'ENDED, OR IS NOT READY'}")
    say(f"its memory: {'no group can be made here' if used is None else f'{used / 2**20:.0f} MiB at most'}")
    say(f"its writes: {writes}, for {findings.changes} changes")
    return lives and not findings.late and writes <= WRITES_PER_CHANGE * findings.changes


def _path(api_version: str, namespace: str, plural: str) -> str:
    return f"/apis/{api_version}/namespaces/{namespace}/{plural}"


def main() -> int:
    """Plays once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--per-second", type=float, default=5.0, help="acts of the tenant")
    options = parser.parse_args()
    binaries.build_all(say, (*binaries.CONTROL_PLANE, "helm"))
    return 0 if play(options.seed, 60 * options.minutes, options.per_second) else 1


if __name__ == "__main__":
    sys.exit(main())
