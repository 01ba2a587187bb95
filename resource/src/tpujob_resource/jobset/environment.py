"""The environment of a pod: only constants and field references, so that pods need no access to the API server."""

import json
from typing import Any

from tpujob_contract import environment as names
from tpujob_contract import job_code, kubernetes_names, ports
from tpujob_resource.jobset.failure_policy import replaces_pods
from tpujob_resource.jobset.multislice_network import libtpu_arguments
from tpujob_resource.models.job import TpuTrainingJob, prebuilt_workload
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.models.spec import EnvVar, Spec, launcher_serves_account
from tpujob_resource.topology.libtpu_flags import ENVIRONMENT_VARIABLE as LIBTPU_ARGUMENTS

type Object = dict[str, Any]

HOME = "/home/tpujob"


def build_environment(job: TpuTrainingJob, settings: JobSettings, incarnation: int) -> list[Object]:
    """The variables of the main container: the user's, then the operator's; each name occurs once."""
    place = _worker(job) if job.spec.workers else _member(job)
    ours = [*_common(job, settings, incarnation), *place, *_devices(job, settings)]
    taken = {variable["name"] for variable in ours}
    theirs = [variable for variable in build_user_environment(job) if variable["name"] not in taken]
    given = {variable["name"] for variable in theirs}
    return [*theirs, *(variable for variable in _defaults(job) if variable["name"] not in given), *ours]


def build_user_environment(job: TpuTrainingJob) -> list[Object]:
    """The variables of `spec.env`."""
    return [_user_variable(variable) for variable in job.spec.env or ()]


def grace_seconds(spec: Spec, settings: JobSettings) -> int:
    """Seconds between SIGTERM and SIGKILL, as Kubernetes grants them.

    On spot machines ordinary pods get 15 s, and a longer terminationGracePeriodSeconds has no effect
    (cloud.google.com/kubernetes-engine/docs/concepts/spot-vms); a process that expects more loses its checkpoint.
    """
    asked = spec.grace_period_seconds
    is_spot = spec.capacity is not None and spec.capacity.spot
    return min(asked, settings.spot_grace_seconds) if is_spot else asked


def coordinator_host(job: TpuTrainingJob) -> str:
    """The shortest DNS name of the pod with process id 0 that pods of the namespace can resolve."""
    name = job.metadata.name
    return f"{name}-{kubernetes_names.REPLICATED_JOB}-0-0.{kubernetes_names.child_name(name)}"


def _defaults(job: TpuTrainingJob) -> list[Object]:
    """Variables that `spec.env` can override."""
    # The image's user may have no writable home directory.
    defaults = [_constant("HOME", HOME)]
    if job.accelerator.is_tpu:
        # An error without a TPU, instead of training on the host's CPUs; the CPU backend serves callbacks.
        defaults.append(_constant("JAX_PLATFORMS", "tpu,cpu"))
    return defaults


def shares_secret(job: TpuTrainingJob) -> bool:
    """Whether the pods of a job have a Secret of their own: their launchers connect, and the job is in a cluster.

    Not with MultiKueue: Kueue compares the containers of both clusters, and there the job has another uid.
    """
    spec = job.spec
    is_gang = spec.workers is None and (job.hosts > 1 or spec.in_place_restarts > 0)
    is_elsewhere = spec.managed_by == kubernetes_names.MULTIKUEUE or any(
        prebuilt_workload(job.metadata.model_dump()).values()
    )
    return is_gang and not is_elsewhere and job.metadata.uid is not None


def build_attempt() -> Object:
    """The variable with the attempt of the JobSet that a pod belongs to; 0 is the first."""
    return _label(names.ATTEMPT, kubernetes_names.RESTART_ATTEMPT)


def _common(job: TpuTrainingJob, settings: JobSettings, incarnation: int) -> list[Object]:
    spec = job.spec
    variables = [
        _constant(names.NAME, job.metadata.name),
        _constant(names.NAMESPACE, job.metadata.namespace),
        _constant(names.INCARNATION, incarnation),
        build_attempt(),
        _constant(names.CHIPS_PER_HOST, job.accelerator.chips_per_host),
        _constant(names.STARTUP_SECONDS, spec.startup_seconds),
        _constant(names.GRACE_SECONDS, grace_seconds(job.spec, settings)),
        _constant(names.REPORT_PORT, ports.REPORT),
    ]
    if spec.checkpoint_dir is not None:
        variables.append(_constant(names.CHECKPOINT_DIR, spec.checkpoint_dir))
    if spec.code is not None:
        variables += [_constant(names.CODE, job_code.DIRECTORY), _constant(names.CODE_SHA256, spec.code.identity)]
    if spec.packages is not None:
        of_packages = {names.REQUIREMENTS: spec.packages.requirements, names.WHEELS: spec.packages.wheels}
        variables += [_constant(name, path) for name, path in of_packages.items() if path is not None]
    if spec.silence_seconds is not None:
        variables.append(_constant(names.SILENCE_SECONDS, spec.silence_seconds))
    if spec.framework is not None:
        variables.append(_constant(names.FRAMEWORK, spec.framework))
    if spec.trainer is not None:
        config = json.dumps(spec.trainer, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        # Kubernetes would replace $(NAME) in a value; $$ becomes one dollar.
        variables.append(_constant(names.CONFIG, config.replace("$", "$$")))
    return variables


def _member(job: TpuTrainingJob) -> list[Object]:
    """The variables of a process of one JAX runtime over all slices."""
    variables = [
        _label(names.SLICE, kubernetes_names.JOB_INDEX),
        _label(names.HOST, kubernetes_names.COMPLETION_INDEX),
        _constant(names.HOSTS_PER_SLICE, job.accelerator.hosts_per_slice),
        _constant(names.SLICES, job.slices),
        _constant(names.COORDINATOR, f"{coordinator_host(job)}:{ports.COORDINATOR}"),
    ]
    if job.spec.in_place_restarts:
        variables.append(_constant(names.IN_PLACE, job.spec.in_place_restarts))
    if launcher_serves_account(job.spec):
        variables.append(_constant(names.IN_PLACE_PORT, ports.IN_PLACE))
    if shares_secret(job):
        reference = {"name": kubernetes_names.secret_name(str(job.metadata.uid)), "key": kubernetes_names.SECRET_KEY}
        variables.append({"name": names.SECRET, "valueFrom": {"secretKeyRef": reference}})
    if replaces_pods(job):
        variables += [
            _field(names.POD, "metadata.name"),
            _field(names.POD_FAILURES, f"metadata.annotations['{kubernetes_names.INDEX_FAILURES}']"),
            _field(names.POD_DISRUPTIONS, f"metadata.annotations['{kubernetes_names.INDEX_IGNORED_FAILURES}']"),
        ]
    if job.slices > 1:
        # Explicit, and the same on CPU: values that the provider injects can be stale on a replaced pod.
        # For one slice they must be absent (the libtpu runtime would look for other slices).
        variables += [
            _constant(names.MEGASCALE_COORDINATOR_ADDRESS, coordinator_host(job)),
            _constant(names.MEGASCALE_NUM_SLICES, job.slices),
            _label(names.MEGASCALE_SLICE_ID, kubernetes_names.JOB_INDEX),
            _constant(names.MEGASCALE_PORT, ports.MEGASCALE),
        ]
    return variables


def _worker(job: TpuTrainingJob) -> list[Object]:
    """The variables of an independent worker; TPU_WORKER_* keep GKE and libtpu from joining workers into one slice."""
    return [
        _label(names.WORKER, kubernetes_names.COMPLETION_INDEX),
        _constant(names.WORKERS, job.spec.workers),
        _constant("TPU_WORKER_ID", 0),
        _constant("TPU_WORKER_HOSTNAMES", "localhost"),
    ]


def _devices(job: TpuTrainingJob, settings: JobSettings) -> list[Object]:
    if job.accelerator.is_tpu:
        arguments = libtpu_arguments(job, settings)
        return [] if arguments is None else [_constant(LIBTPU_ARGUMENTS, arguments)]
    return [_constant("JAX_PLATFORMS", "cpu"), _constant("JAX_NUM_CPU_DEVICES", job.accelerator.devices_per_host)]


def _constant(name: str, value: str | int | None) -> Object:
    return {"name": name, "value": str(value)}


def _label(name: str, key: str) -> Object:
    return _field(name, f"metadata.labels['{key}']")


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _user_variable(variable: EnvVar) -> Object:
    return variable.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
