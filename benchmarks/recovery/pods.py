"""A job in pods of the one-machine cluster of `make cluster`; logs are read from the node's files."""

import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.recovery import faults, programs
from benchmarks.recovery.timing import Recovery, first_start, recovery
from tests.e2e import node_loss
from tests.e2e.host_folders import claimed, writable
from tests.e2e.jobs import Jobs, jobs_in_namespace
from tests.e2e.surroundings import Surroundings
from tests.workloads import maxtext_job
from tools.localcluster import background
from tools.localcluster.kubelet import FIRST, SECOND
from tools.localcluster.second_machine import SecondMachine
from tools.localcluster.waiting import wait_for

JOB = "job"
LOGS = [background.DIRECTORY / node.name / "pods" for node in (FIRST, SECOND)]
"""The kubelets' folders of pod logs."""
LIMIT_SECONDS = 300.0
AT_ONCE = ("--grace-period=0", "--force", "--wait=false")
STEPS_BEFORE = 30
GRACE_SECONDS = 15
"""A plain JAX program uses all of it: JAX catches SIGTERM, and the program does not ask JAX about it."""
MEMORY, MAXTEXT_MEMORY = "1500Mi", "4Gi"
"""The memory limit of each container, which an OOM kill exceeds."""
MAXTEXT = programs.ROOT / ".cache" / "maxtext-pods"
MAXTEXT_PROGRAM = programs.ROOT / "images" / "maxtext" / "maxtext-train"


def measure(program: str, fault: str, *, in_place: bool, pods: int, folder: Path) -> tuple[Recovery, Recovery]:
    """Runs the job and injects a fault; returns the seconds of the first start, and of the one after the fault."""
    surroundings = Surroundings.handed_over()
    if surroundings is None:
        raise SystemExit("no cluster is up: run `make cluster` first")
    text = write_text(surroundings)
    step = programs.STEP_LINES[program]
    with ExitStack() as machines, jobs_in_namespace(surroundings, text, "recovery", {}) as jobs:
        machine = machines.enter_context(node_loss.second_machine(surroundings)) if fault == faults.OF_NODE else None
        memory = node_loss.more_than_half_of_a_node(jobs) if machine else ""
        folders = {"saved": writable(folder / "saved")} | ({"maxtext": MAXTEXT} if program == "MaxText" else {})
        with claimed(jobs, folders):
            apply(jobs, program, pods, in_place_restarts=3 if in_place else 0, memory=memory)

            def found() -> Recovery | None:
                return first_start(lines_of(jobs), step)

            def found_again() -> Recovery | None:
                # Kept, because the log of a deleted pod is deleted, too.
                victim.update(line for _, line in lines_of(jobs, process=pods - 1))
                return recovery(lines_of(jobs), step, faults.happened(victim, at))

            def steps() -> bool:
                return sum(bool(step.search(line)) for _, line in lines_of(jobs)) >= STEPS_BEFORE

            victim: set[str] = set()
            explain = lambda: jobs.explain(JOB)  # noqa: E731
            try:
                first = wait_for("a step", found, timeout_seconds=LIMIT_SECONDS, explain=explain)
                wait_for("steps", steps, timeout_seconds=LIMIT_SECONDS, explain=explain)
                at = _lose(jobs, machine) if machine else _strike(jobs, fault)
                again = wait_for("a step", found_again, timeout_seconds=LIMIT_SECONDS, explain=explain)
            finally:
                jobs.delete(JOB)
                # The measurement is over: no need to wait for the grace period of the pods.
                jobs.cluster.kubectl("delete", "pods", "--all", f"--namespace={jobs.namespace}", *AT_ONCE)
                wait_for("its pods to go", lambda: not jobs.pods(JOB), timeout_seconds=LIMIT_SECONDS)
    return first, again


def write_text(surroundings: Surroundings, folder: str = "recovery") -> str:
    """Writes the trainer's text; returns its path. Concurrent jobs need their own folders, as data must not change."""
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": ["tick tock tick " * 20] * 256}), buffer)
    surroundings.storage.write(f"{folder}/text.parquet", buffer.getvalue().to_pybytes())
    return f"gs://{surroundings.bucket}/{folder}/*.parquet"


def _strike(jobs: Jobs, fault: str) -> float:
    """Signals the last process, or deletes its pod; returns the time, in Unix seconds."""
    victim = max(jobs.pods(JOB), key=lambda pod: int(pod["metadata"]["labels"][INDEX]))["metadata"]["name"]
    if fault == faults.OF_POD:
        at = time.time()
        jobs.cluster.kubectl("delete", "pod", victim, f"--namespace={jobs.namespace}", "--wait=false")
        return at
    return signalled(jobs, victim, faults.SIGNALS[fault])


def _lose(jobs: Jobs, machine: SecondMachine) -> float:
    """Cuts the power of the machine and starts another in its place; returns the time of the loss, in Unix seconds."""
    at = time.time()
    node_loss.lose(jobs, machine)
    node_loss.wait_until_pods_are_gone(jobs, JOB)
    machine.start()
    return at


def signalled(jobs: Jobs, pod: str, number: int) -> float:
    """Signals the program of a pod, the only child of process 1 there; returns the time, in Unix seconds."""
    return float(jobs.run_inside(pod, faults.STRIKE.replace("NUMBER", str(int(number)))))


INDEX = "batch.kubernetes.io/job-completion-index"


def lines_of(jobs: Jobs, process: int = 0) -> list[tuple[float, str]]:
    """The log lines of one process in all its pods, with containerd's timestamps, in Unix seconds."""
    found = []
    pattern = f"{jobs.namespace}_{JOB}-w-0-{process}-*/main/*.log"
    for file in (file for folder in LOGS for file in folder.glob(pattern)):
        try:
            lines = file.read_text(errors="replace").splitlines()
        except FileNotFoundError:  # its pod is gone
            continue
        for line in lines:
            stamp, _, rest = line.partition(" ")
            if rest:
                found.append((datetime.fromisoformat(stamp).timestamp(), rest))
    return sorted(found, key=lambda pair: pair[0])


def apply(
    jobs: Jobs,
    program: str,
    pods: int,
    *,
    in_place_restarts: int,
    sitecustomize: str = faults.SITECUSTOMIZE,
    memory: str = "",
    **fields: Any,
) -> None:
    """Applies a job of one of `programs.STEP_LINES`.

    Args:
        jobs: The jobs of its namespace.
        program: The name of the program.
        pods: The number of pods.
        in_place_restarts: Of the job.
        sitecustomize: The code that each Python runs first.
        memory: The request of each pod, which then has no limit; empty: a small request, and a limit.
        fields: Additional fields of its spec.
    """
    resources: dict[str, Any] = {"requests": {"cpu": "10m", "memory": memory or "64Mi"}}
    if not memory:
        resources["limits"] = {"memory": MAXTEXT_MEMORY if program == "MaxText" else MEMORY}
    files = {"sitecustomize.py": sitecustomize, "program.py": programs.PLAIN_JAX}
    volumes: list[dict[str, Any]] = [{"name": "given", "mountPath": "/opt/given", "configMap": "given"}]
    if program != "trainer":
        volumes.append({"name": "saved", "mountPath": "/mnt/saved", "persistentVolumeClaim": "saved"})
    variables = {"PYTHONPATH": "/opt/given", "SAVED": "/mnt/saved"}
    if program == "MaxText":
        files[MAXTEXT_PROGRAM.name] = MAXTEXT_PROGRAM.read_text()
        its_own = {"name": "maxtext", "persistentVolumeClaim": "maxtext"}
        volumes.append({**its_own, "mountPath": "/opt/maxtext", "readOnly": True})
        variables |= {"PYTHONPATH": "/opt/given:/opt/maxtext", "PYTHONPYCACHEPREFIX": "/mnt/saved/compiled"}
    metadata = {"name": "given", "namespace": jobs.namespace}
    jobs.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files})
    spec: dict[str, Any] = {
        "accelerator": f"cpu:{pods}x1",
        "inPlaceRestarts": in_place_restarts,
        "gracePeriodSeconds": GRACE_SECONDS,
        "resources": resources,
        **_of_program(jobs, program),
        **fields,
    }
    env = [{"name": key, "value": value} for key, value in variables.items()]
    jobs.apply(JOB, volumes=volumes, env=env, **spec)


def _of_program(jobs: Jobs, program: str) -> dict[str, Any]:
    """The fields of a job's spec that say what runs."""
    if program == "trainer":
        return {"trainer": programs.trainer(jobs.text), "checkpointDir": jobs.checkpoint_dir(JOB)}
    if program == "MaxText":
        return {
            "framework": "maxtext",
            "image": jobs.surroundings.python_image,
            "command": ["python3", f"/opt/given/{MAXTEXT_PROGRAM.name}", *maxtext_job.arguments(**programs.MAXTEXT)],
            "checkpointDir": "/mnt/saved/job",
        }
    return {"image": jobs.surroundings.jax_image, "command": ["python3", "/opt/given/program.py"]}
