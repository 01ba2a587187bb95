"""The environment variables of a process, as the operator writes them and the trainer reads them.

All present: a process of a job. None: a single process without a job. Some: an error, because a job that silently
becomes many single-process jobs wastes days.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Union

from tpujob_contract import ports, process_ids

PREFIX = "TPUJOB_"

NAME = "TPUJOB_NAME"
NAMESPACE = "TPUJOB_NAMESPACE"
INCARNATION = "TPUJOB_INCARNATION"
ATTEMPT = "TPUJOB_ATTEMPT"
SLICE = "TPUJOB_SLICE"
HOST = "TPUJOB_HOST"
HOSTS_PER_SLICE = "TPUJOB_HOSTS_PER_SLICE"
SLICES = "TPUJOB_SLICES"
CHIPS_PER_HOST = "TPUJOB_CHIPS_PER_HOST"
COORDINATOR = "TPUJOB_COORDINATOR"
CHECKPOINT_DIR = "TPUJOB_CHECKPOINT_DIR"
CONFIG = "TPUJOB_CONFIG"
STARTUP_SECONDS = "TPUJOB_STARTUP_SECONDS"
GRACE_SECONDS = "TPUJOB_GRACE_SECONDS"
REPORT_PORT = "TPUJOB_REPORT_PORT"
FRAMEWORK = "TPUJOB_FRAMEWORK"
"""The framework for which the launcher sets additional variables: see `tpujob_launcher.reports.frameworks`."""
CODE = "TPUJOB_CODE"
"""Folder of the job's own code (`spec.code`); the launcher puts it on PYTHONPATH."""
CODE_SHA256 = "TPUJOB_CODE_SHA256"
"""Identifies that code: the SHA-256 of its archive, or the commit of its repository."""
REQUIREMENTS = "TPUJOB_REQUIREMENTS"
WHEELS = "TPUJOB_WHEELS"
"""Packages to install (`spec.packages`): a requirements file, a folder of wheels; relative to `CODE`."""
IN_PLACE = "TPUJOB_IN_PLACE"
"""How often all programs may start again in their containers (`spec.inPlaceRestarts`)."""
LAUNCHER_PORT = "TPUJOB_LAUNCHER_PORT"
"""Port of launcher 0, on the coordinator's host: the launchers of all processes connect to it."""
IN_PLACE_ATTEMPT = "TPUJOB_IN_PLACE_ATTEMPT"
"""The number of a program's attempt in its container, from 0; the launcher sets it."""
IN_PLACE_CAUSE = "TPUJOB_IN_PLACE_CAUSE"
"""Why the attempt before it ended, in one line; the launcher sets it."""
IN_PLACE_ACCOUNT = "TPUJOB_IN_PLACE_ACCOUNT"
"""How all earlier attempts in these containers ended, as JSON for the report; the launcher sets it."""
IN_PLACE_PORT = "TPUJOB_IN_PLACE_PORT"
"""Port on which launcher 0 serves its account of restarts in place; unset: it serves none."""
POD = "TPUJOB_POD"
"""Name of the pod, if Kubernetes replaces lost pods."""
POD_FAILURES = "TPUJOB_POD_FAILURES"
POD_DISRUPTIONS = "TPUJOB_POD_DISRUPTIONS"
"""How many earlier pods of this process were replaced, as the Job controller counts them in two annotations."""
SECRET = "TPUJOB_SECRET"  # noqa: S105 - its name
"""What the launchers of a job show each other (`shared_secret`); unset: nothing. Commands do not get it."""
SILENCE_SECONDS = "TPUJOB_SILENCE_SECONDS"
"""How long a program may print nothing (`spec.silenceSeconds`); unset: without limit."""
WORKER = "TPUJOB_WORKER"
WORKERS = "TPUJOB_WORKERS"

MEGASCALE_COORDINATOR_ADDRESS = "MEGASCALE_COORDINATOR_ADDRESS"
MEGASCALE_NUM_SLICES = "MEGASCALE_NUM_SLICES"
MEGASCALE_SLICE_ID = "MEGASCALE_SLICE_ID"
MEGASCALE_PORT = "MEGASCALE_PORT"

TERMINATION_LOG = "TPUJOB_TERMINATION_LOG"
"""File for the launcher's termination message; unset: /dev/termination-log if it exists."""

LAUNCHER_SOCKET = "TPUJOB_LAUNCHER_SOCKET"
"""Socket of the launcher for reports of the hook in Python programs: `tpujob_launcher.supervise.start_hook`."""

PEERS_SOCKET = "TPUJOB_PEERS_SOCKET"
"""Socket of the launcher for messages about the peers, and the program's progress: `tpujob_launcher.peers.program`."""

DEFAULT_GRACE_SECONDS = 30
"""Kubernetes' own default, for a process without a job."""

RESERVED_PREFIXES = (
    PREFIX,
    "MEGASCALE_",
    "JAX_COORDINATOR",
    "JAX_PROCESS_",
    "JAX_NUM_PROCESSES",
    "JAX_LOCAL_DEVICE_IDS",
    "JAX_PARTITION_INDEX",
    "JAX_SLICE_INDEX",
    "JOB_COMPLETION_INDEX",
    "CLOUD_TPU_TASK_ID",
    "TPU_WORKER_",
    "TPU_PROCESS_",
    "TPU_ACCELERATOR_TYPE",
    "TPU_TOPOLOGY",
    "TPU_HOST_BOUNDS",
    "TPU_CHIPS_PER_",
    "TPU_VISIBLE_",
    "TPU_SKIP_MDS_QUERY",
    "TPU_RUNTIME_METRICS_PORTS",
)
"""Variables that the operator or the TPU runtime sets: refused in the environment that a user sets."""

COMMON = (NAME, NAMESPACE, INCARNATION, ATTEMPT, CHIPS_PER_HOST, STARTUP_SECONDS, GRACE_SECONDS)
DISTRIBUTED = (*COMMON, SLICE, HOST, HOSTS_PER_SLICE, SLICES, COORDINATOR)
INDEPENDENT = (*COMMON, WORKER, WORKERS)
OPTIONAL = (
    CHECKPOINT_DIR,
    CODE,
    CODE_SHA256,
    CONFIG,
    FRAMEWORK,
    IN_PLACE,
    IN_PLACE_ACCOUNT,
    IN_PLACE_ATTEMPT,
    IN_PLACE_CAUSE,
    IN_PLACE_PORT,
    LAUNCHER_PORT,
    LAUNCHER_SOCKET,
    PEERS_SOCKET,
    POD,
    POD_DISRUPTIONS,
    POD_FAILURES,
    REPORT_PORT,
    REQUIREMENTS,
    SECRET,
    SILENCE_SECONDS,
    TERMINATION_LOG,
    WHEELS,
)


class ContractError(ValueError):
    """The environment is not that of a job's process, but has some of its variables."""


@dataclass(frozen=True)
class _Process:
    name: str
    """Name of the TpuTrainingJob."""
    namespace: str
    incarnation: int
    """The number of the job's JobSet, from 1."""
    attempt: int
    """JobSet's restart attempt, from 0. Unchanged by suspend and resume."""
    chips_per_host: int
    """TPU chips of this host; for `cpu:` accelerators, CPU devices. 0: all that exist."""
    startup_seconds: int
    """How long to wait for the other processes at start."""
    grace_seconds: int
    """Time between being asked to stop and being killed."""
    checkpoint_dir: Optional[str]
    config: Optional[str]
    """The `trainer` block as JSON; None for a job with `command`."""
    report_port: int
    """HTTP port of /metrics and /report."""
    in_place: int
    """How often all programs may start again in their containers; 0: never."""
    in_place_attempt: int
    """The number of the attempt in its container, from 0."""
    in_place_cause: str
    """Why the attempt before it ended, in one line; empty in the first."""
    in_place_account: str
    """How all attempts before it ended: `in_place.Account` as JSON; empty in the first."""
    in_place_port: int
    """Port on which launcher 0 serves this account; 0: it does not."""
    launcher_port: int
    """Port of launcher 0."""
    pod: str
    """Name of the pod if lost pods are replaced; otherwise empty."""
    pods_before: Optional[int]
    """How many pods this process had before; None: lost pods are not replaced."""
    silence_seconds: Optional[int]
    """How long a program may print nothing; None: without limit."""
    secret: str = field(repr=False)
    """What its launcher shows those of the other processes; empty: nothing."""

    @property
    def owner(self) -> str:
        """The job as namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class LocalProcess(_Process):
    """A single process without a job; only the optional variables apply to it."""


@dataclass(frozen=True)
class DistributedProcess(_Process):
    """One process of one JAX runtime over `slices` × `hosts_per_slice` hosts."""

    slice_index: int
    host_index: int
    hosts_per_slice: int
    slices: int
    coordinator: str
    """host:port of process 0."""

    @property
    def process_id(self) -> int:
        """Index of this process, 0 to num_processes − 1."""
        return process_ids.process_id(
            slice_index=self.slice_index, host_index=self.host_index, hosts_per_slice=self.hosts_per_slice
        )

    @property
    def num_processes(self) -> int:
        """Number of processes of the job."""
        return process_ids.num_processes(slices=self.slices, hosts_per_slice=self.hosts_per_slice)


@dataclass(frozen=True)
class IndependentWorker(_Process):
    """One of several single-host workers that do not communicate."""

    worker: int
    """Its number, from 0; a worker that was added to a running job has `workers` or more."""
    workers: int
    """How many workers the job had at its start."""


Process = Union[DistributedProcess, IndependentWorker, LocalProcess]


def read_environment(environ: Mapping[str, str]) -> Process:
    """The process that this environment describes; a `LocalProcess` if there is no variable of a job.

    Raises:
        ContractError: Only some variables are set, or a value is invalid; the message names each.
    """
    # Users may set optional ones for a process without a job (a port, the file of the termination message).
    present = {k for k in environ if k.startswith(PREFIX) and k not in OPTIONAL}
    optional = {
        "checkpoint_dir": environ.get(CHECKPOINT_DIR) or None,
        "config": environ.get(CONFIG) or None,
        "report_port": _integer(environ, REPORT_PORT, 0) if environ.get(REPORT_PORT) else ports.REPORT,
        "in_place": _integer(environ, IN_PLACE, 0) if environ.get(IN_PLACE) else 0,
        "in_place_attempt": _integer(environ, IN_PLACE_ATTEMPT, 0) if environ.get(IN_PLACE_ATTEMPT) else 0,
        "in_place_cause": environ.get(IN_PLACE_CAUSE, ""),
        "in_place_account": environ.get(IN_PLACE_ACCOUNT, ""),
        "in_place_port": _integer(environ, IN_PLACE_PORT, 0) if environ.get(IN_PLACE_PORT) else 0,
        "pod": environ.get(POD, ""),
        "pods_before": _pods_before(environ),
        "launcher_port": _integer(environ, LAUNCHER_PORT, 1) if environ.get(LAUNCHER_PORT) else ports.LAUNCHER,
        "silence_seconds": _integer(environ, SILENCE_SECONDS, 1) if environ.get(SILENCE_SECONDS) else None,
        "secret": environ.get(SECRET, ""),
    }
    if not present:
        return _local(optional)
    independent = WORKER in present or WORKERS in present
    wanted = INDEPENDENT if independent else DISTRIBUTED
    missing = [k for k in wanted if not environ.get(k)]
    if missing:
        raise ContractError(
            f"the environment has {', '.join(sorted(present))} but lacks {', '.join(missing)}; "
            "set all of them (the operator and `tpujob run` do) or none"
        )
    common = {
        "name": environ[NAME],
        "namespace": environ[NAMESPACE],
        "incarnation": _integer(environ, INCARNATION, 1),
        "attempt": _integer(environ, ATTEMPT, 0),
        "chips_per_host": _integer(environ, CHIPS_PER_HOST, 1),
        "startup_seconds": _integer(environ, STARTUP_SECONDS, 1),
        "grace_seconds": _integer(environ, GRACE_SECONDS, 1),
        **optional,
    }
    if independent:
        workers = _integer(environ, WORKERS, 1)
        return IndependentWorker(worker=_integer(environ, WORKER, 0), workers=workers, **common)  # type: ignore[arg-type]
    slices = _integer(environ, SLICES, 1)
    hosts = _integer(environ, HOSTS_PER_SLICE, 1)
    coordinator = environ[COORDINATOR]
    if not re.fullmatch(r"[^:\s]+:[1-9][0-9]{0,4}", coordinator):
        raise ContractError(f"{COORDINATOR}={coordinator!r} is not host:port")
    return DistributedProcess(
        slice_index=_integer(environ, SLICE, 0, slices),
        host_index=_integer(environ, HOST, 0, hosts),
        hosts_per_slice=hosts,
        slices=slices,
        coordinator=coordinator,
        **common,  # type: ignore[arg-type]
    )


def _pods_before(environ: Mapping[str, str]) -> Optional[int]:
    if not environ.get(POD_FAILURES):
        return None
    # An absent annotation becomes an empty value.
    return sum(_integer(environ, name, 0) for name in (POD_FAILURES, POD_DISRUPTIONS) if environ.get(name))


def _local(optional: Mapping[str, Any]) -> LocalProcess:
    return LocalProcess(
        name="trainer",
        namespace="local",
        incarnation=0,
        attempt=0,
        chips_per_host=0,
        startup_seconds=DEFAULT_GRACE_SECONDS,
        grace_seconds=DEFAULT_GRACE_SECONDS,
        **optional,
    )


def _integer(environ: Mapping[str, str], key: str, least: int, below: Optional[int] = None) -> int:
    text = environ[key]
    allowed = f"a whole number from {least}" + (f" to {below - 1}" if below is not None else " up")
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least or (below is not None and int(text) >= below):
        raise ContractError(f"{key}={text!r} is not {allowed}")
    return int(text)


def margin_seconds(grace_seconds: float) -> float:
    """The launcher's part of a grace period: to kill and reap, pass output on, and write the termination message."""
    return min(2.0, grace_seconds / 5)
