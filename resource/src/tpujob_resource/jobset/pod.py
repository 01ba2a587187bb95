"""The pod of a host: restricted profile, no token, all chips of the machine, and the command under the launcher."""

from collections.abc import Sequence
from typing import Any

from tpujob_contract import commands, kubernetes_names, ports
from tpujob_contract.job_code import DIRECTORY, EMULATOR
from tpujob_resource.jobset.environment import (
    build_attempt,
    build_environment,
    build_user_environment,
    grace_seconds,
)
from tpujob_resource.jobset.multislice_network import pod_network, resource_claims
from tpujob_resource.jobset.scheduling import Avoided, node_affinity, node_selector, tolerations
from tpujob_resource.jobset.volumes import CODE, LAUNCHER, build_mounts, build_volumes, code_volume
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.models.spec import Code, ResourceAmounts, Resources, launcher_serves_account
from tpujob_resource.topology import machines

type Object = dict[str, Any]

TPU_RESOURCE = "google.com/tpu"
TRAINER = ("python", "-m", "tpujob_trainer")


def pod_template(
    job: TpuTrainingJob, settings: JobSettings, incarnation: int, avoided: Sequence[Avoided] = ()
) -> Object:
    """The specification of every pod of the job; `avoided` are labels of nodes where it must not run."""
    spec = job.spec
    optional = {
        "serviceAccountName": spec.service_account_name,
        "priorityClassName": spec.priority_class_name,
        "imagePullSecrets": [{"name": secret.name} for secret in spec.image_pull_secrets or ()],
        "nodeSelector": node_selector(job),
        "affinity": node_affinity(avoided),
        "tolerations": tolerations(job),
        "initContainers": _build_init_containers(job, settings),
    }
    return {
        # JobSet's webhook would default to OnFailure, with which no Job could be created.
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds(job.spec, settings),
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
        **pod_network(job, settings),
        "containers": [_build_main(job, settings, incarnation)],
        "volumes": build_volumes(job),
    }


def _build_main(job: TpuTrainingJob, settings: JobSettings, incarnation: int) -> Object:
    spec = job.spec
    if spec.trainer is not None:
        image, command = spec.image or settings.trainer_image, [*commands.IN_IMAGE, *TRAINER]
    else:
        image, command = spec.image or "", [*commands.CARRIED, *(spec.command or ())]
    container: Object = {
        "name": kubernetes_names.CONTAINER,
        "image": image,
        "command": command,
        **({"args": list(spec.args)} if spec.args else {}),
        # Where users start their program: `python3 train.py`. The trainer's relative paths refer to the image.
        **({"workingDir": DIRECTORY} if spec.code is not None and spec.trainer is None else {}),
        "env": build_environment(job, settings, incarnation),
        "ports": _ports(job),
        "resources": _resources(job, settings),
        # Without a message of the launcher (after a kill, or in a user's image) the last lines of the log replace it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _build_main_security(settings, read_only=spec.trainer is not None),
        "volumeMounts": build_mounts(job),
    }
    policy = spec.image_pull_policy or settings.image_pull_policy
    return container | ({"imagePullPolicy": policy} if policy else {})


def _build_init_containers(job: TpuTrainingJob, settings: JobSettings) -> list[Object]:
    carrier = [_build_carrier(settings)] if job.spec.trainer is None else []
    return carrier + ([_build_code(job, job.spec.code, settings)] if job.spec.code is not None else [])


def _build_code(job: TpuTrainingJob, code: Code, settings: JobSettings) -> Object:
    """The init container that fetches, verifies and unpacks the job's code, with the job's identity."""
    if code.repository is not None:
        # git assembles objects in memory: one of MAX_UNPACKED_BYTES, together with its parts and its delta base.
        names, memory = frozenset(commands.GIT_PROXIES), "2Gi"
        command = [*commands.INSTALL_COMMIT, code.repository, code.identity, DIRECTORY]
    else:
        names, memory = frozenset({EMULATOR}), "256Mi"
        command = [*commands.INSTALL, code.archive or "", code.identity, DIRECTORY]
    variables = [variable for variable in build_user_environment(job) if variable["name"] in names]
    volume = code_volume(job)
    mounts: list[Object] = [{"name": CODE, "mountPath": DIRECTORY}]
    if volume is not None:
        mounts.append({"name": volume.name, "mountPath": volume.mount_path, "readOnly": True})
    policy = {"imagePullPolicy": settings.image_pull_policy} if settings.image_pull_policy else {}
    return {
        "name": kubernetes_names.CODE_CONTAINER,
        "image": settings.operator_image,
        "command": command,
        "env": [build_attempt(), *variables],
        **policy,
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": memory}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _build_container_security(read_only=True),
        "volumeMounts": mounts,
    }


def _build_carrier(settings: JobSettings) -> Object:
    """The init container that copies the launcher into the pod, for images that do not contain it."""
    policy = {"imagePullPolicy": settings.image_pull_policy} if settings.image_pull_policy else {}
    return {
        "name": "launcher",
        "image": settings.operator_image,
        "command": list(commands.CARRY),
        **policy,
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": _build_container_security(read_only=True),
        "volumeMounts": [{"name": LAUNCHER, "mountPath": commands.CARRIED_DIRECTORY}],
    }


def _build_container_security(*, read_only: bool) -> Object:
    """The restricted profile; `read_only` for our own images, while users' images may write to their root."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": read_only,
    }


def _build_main_security(settings: JobSettings, *, read_only: bool) -> Object:
    """The security context of the main container, with the privileges that the administrator adds."""
    if settings.privileged:
        # Includes all capabilities; Kubernetes refuses the two other fields in combination with it.
        return {"privileged": True, "readOnlyRootFilesystem": read_only}
    made = _build_container_security(read_only=read_only)
    if settings.add_capabilities:
        made["capabilities"] = {"drop": ["ALL"], "add": list(settings.add_capabilities)}
    return made


def _ports(job: TpuTrainingJob) -> list[Object]:
    named = [("report", ports.REPORT)]
    if launcher_serves_account(job.spec):
        named.append(("in-place", ports.IN_PLACE))
    if job.spec.workers is None:
        named.append(("coordinator", ports.COORDINATOR))
        if job.slices > 1:
            named.append(("megascale", ports.MEGASCALE))
    return [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in named]


def _resources(job: TpuTrainingJob, settings: JobSettings) -> Object:
    asked = job.spec.resources or Resources()
    chips = {TPU_RESOURCE: job.accelerator.chips_per_host} if job.accelerator.is_tpu else {}
    requests, limits = _amounts(asked.requests), _amounts(asked.limits)
    if job.accelerator.machine_type is not None and settings.machine_requests:
        # Kubernetes uses the limit as the request if none is given.
        of_machine = machines.requested(job.accelerator.machine_type)
        requests = {name: amount for name, amount in of_machine.items() if name not in limits} | requests
    amounts = {"requests": requests | chips, "limits": limits | chips, "claims": resource_claims(job, settings)}
    return {kind: values for kind, values in amounts.items() if values}


def _amounts(given: ResourceAmounts | None) -> Object:
    return given.model_dump(by_alias=True, exclude_none=True) if given is not None else {}
