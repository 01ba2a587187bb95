"""The pod of one host: restricted profile, no token, all chips of the machine, the launcher before the command."""

from __future__ import annotations

from typing import Any

from tpujob_contract import kubernetes_names, ports
from tpujob_contract.launch import command as launch_command
from tpujob_operator.api.job import TpuTrainingJob
from tpujob_operator.api.spec import ResourceAmounts, Resources
from tpujob_operator.jobset.environment import build_environment, grace_seconds
from tpujob_operator.jobset.volumes import LAUNCHER, build_mounts, build_volumes
from tpujob_operator.settings import Settings
from tpujob_operator.topology import machines

type Object = dict[str, Any]

TPU_RESOURCE = "google.com/tpu"
TRAINER = ("python", "-m", "tpujob_trainer")
_SPOT = "cloud.google.com/gke-spot"
_COMPUTE_CLASS = "cloud.google.com/compute-class"
_FLEX_START = "cloud.google.com/gke-flex-start"


def pod_template(job: TpuTrainingJob, settings: Settings, incarnation: int) -> Object:
    """Specification of every pod of the job."""
    spec = job.spec
    optional = {
        "serviceAccountName": spec.service_account_name,
        "priorityClassName": spec.priority_class_name,
        "imagePullSecrets": [{"name": secret.name} for secret in spec.image_pull_secrets or ()],
        "nodeSelector": _node_selector(job),
        "tolerations": _tolerations(job),
        "initContainers": [_build_carrier(settings)] if spec.trainer is None else [],
    }
    return {
        # JobSet's webhook would fill in OnFailure, with which no Job could be created.
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds(job, settings),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.run_as_user,
            "runAsGroup": settings.run_as_user,
            "fsGroup": settings.run_as_user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **{key: value for key, value in optional.items() if value},
        "containers": [_build_main(job, settings, incarnation)],
        "volumes": build_volumes(job),
    }


def _build_main(job: TpuTrainingJob, settings: Settings, incarnation: int) -> Object:
    spec = job.spec
    if spec.trainer is not None:
        image, command = spec.image or settings.trainer_image, [*launch_command.IN_IMAGE, *TRAINER]
    else:
        image, command = spec.image or "", [*launch_command.CARRIED, *(spec.command or ())]
    container: Object = {
        "name": kubernetes_names.CONTAINER,
        "image": image,
        "command": command,
        **({"args": list(spec.args)} if spec.args else {}),
        "env": build_environment(job, settings, incarnation),
        "ports": _ports(job),
        "resources": _resources(job, settings),
        # Without a message of the launcher's (a kill, a foreign image) the last lines of the log take its place.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _build_main_security(settings, read_only=spec.trainer is not None),
        "volumeMounts": build_mounts(job),
    }
    policy = spec.image_pull_policy or settings.image_pull_policy
    return container | ({"imagePullPolicy": policy} if policy else {})


def _build_carrier(settings: Settings) -> Object:
    """Copies the launcher into the pod, for images that do not contain it."""
    policy = {"imagePullPolicy": settings.image_pull_policy} if settings.image_pull_policy else {}
    return {
        "name": "launcher",
        "image": settings.operator_image,
        "command": list(launch_command.CARRY),
        **policy,
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": _build_container_security(read_only=True),
        "volumeMounts": [{"name": LAUNCHER, "mountPath": launch_command.CARRIED_DIRECTORY}],
    }


def _build_container_security(*, read_only: bool) -> Object:
    """The restricted profile, and our own images' root file system closed; foreign ones may write where they please."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": read_only,
    }


def _build_main_security(settings: Settings, *, read_only: bool) -> Object:
    """The container's, widened as far as the administrator allows."""
    if settings.privileged:
        # Includes every capability; Kubernetes refuses the two other words beside it.
        return {"privileged": True, "readOnlyRootFilesystem": read_only}
    made = _build_container_security(read_only=read_only)
    if settings.add_capabilities:
        made["capabilities"] = {"drop": ["ALL"], "add": list(settings.add_capabilities)}
    return made


def _ports(job: TpuTrainingJob) -> list[Object]:
    named = [("report", ports.REPORT)]
    if job.spec.workers is None:
        named.append(("coordinator", ports.COORDINATOR))
        if job.slices > 1:
            named.append(("megascale", ports.MEGASCALE))
    return [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in named]


def _resources(job: TpuTrainingJob, settings: Settings) -> Object:
    asked = job.spec.resources or Resources()
    chips = {TPU_RESOURCE: job.accelerator.chips_per_host} if job.accelerator.is_tpu else {}
    requests, limits = _amounts(asked.requests), _amounts(asked.limits)
    if job.accelerator.machine_type is not None and settings.machine_requests:
        # Kubernetes takes a limit for the request where none is given.
        of_machine = machines.requested(job.accelerator.machine_type)
        requests = {name: amount for name, amount in of_machine.items() if name not in limits} | requests
    amounts = {"requests": requests | chips, "limits": limits | chips}
    return {kind: values for kind, values in amounts.items() if values}


def _amounts(given: ResourceAmounts | None) -> Object:
    return given.model_dump(by_alias=True, exclude_none=True) if given is not None else {}


def _node_selector(job: TpuTrainingJob) -> dict[str, str]:
    capacity = job.spec.capacity
    chosen: dict[str, str] = {}
    if capacity is not None and capacity.spot:
        chosen[_SPOT] = "true"
    if capacity is not None and capacity.flex_start:
        chosen[_FLEX_START] = "true"
    if capacity is not None and capacity.reservation is not None:
        chosen["cloud.google.com/reservation-name"] = capacity.reservation.name
        chosen["cloud.google.com/reservation-affinity"] = "specific"
        if capacity.reservation.project is not None:
            chosen["cloud.google.com/reservation-project"] = capacity.reservation.project
        if capacity.reservation.block is not None:
            chosen["cloud.google.com/reservation-blocks"] = capacity.reservation.block
        if capacity.reservation.sub_block is not None:
            chosen["cloud.google.com/reservation-subblocks"] = capacity.reservation.sub_block
    if capacity is not None and capacity.compute_class is not None:
        chosen[_COMPUTE_CLASS] = capacity.compute_class
    placement = job.spec.placement
    if placement is not None and placement.policy_name is not None:
        chosen["cloud.google.com/placement-policy-name"] = placement.policy_name
    return {**(job.spec.node_selector or {}), **job.accelerator.node_selector, **chosen}


def _tolerations(job: TpuTrainingJob) -> list[Object]:
    spec = job.spec
    tolerations: list[Object] = []
    if job.accelerator.is_tpu:
        # GKE's admission adds it too; elsewhere nobody does.
        tolerations.append({"key": TPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"})
    for key, is_chosen in (
        (_SPOT, spec.capacity is not None and spec.capacity.spot),
        (_FLEX_START, spec.capacity is not None and spec.capacity.flex_start),
    ):
        if is_chosen:
            tolerations.append({"key": key, "operator": "Equal", "value": "true", "effect": "NoSchedule"})
    if spec.capacity is not None and spec.capacity.compute_class is not None:
        value = spec.capacity.compute_class
        tolerations.append({"key": _COMPUTE_CLASS, "operator": "Equal", "value": value, "effect": "NoSchedule"})
    tolerations += [t.model_dump(by_alias=True, exclude_none=True) for t in spec.tolerations or ()]
    return tolerations
