"""What a model of single fields cannot say: rules between fields, and arithmetic. Each rule yields sentences.

The API server checks most of these too (crd_rules), so that `kubectl apply` refuses them; here they are complete, and
hold for `tpujob run` as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from tpujob_contract.block_rules import TASK
from tpujob_resource.errors import InvalidField
from tpujob_resource.messages.error_messages import shown
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.shared_units import UNIT_TASKS
from tpujob_resource.rules import container_rules, placement_rules, volume_rules
from tpujob_resource.rules.code_rules import code_source
from tpujob_resource.rules.limits import spec_size
from tpujob_resource.rules.slice_counts import slice_counts
from tpujob_resource.rules.trainer_rules import trainer_contradictions
from tpujob_resource.rules.trainer_schema import trainer_problems
from tpujob_resource.topology import parse
from tpujob_resource.topology.tables import GENERATIONS

MAX_NAME = 49
NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
MAX_POD_NAME = 63
TERMINATION_TAINT = "cloud.google.com/impending-node-termination"

type Problems = Iterator[str]


def broken_rules(job: TpuTrainingJob) -> tuple[str, ...]:
    """Everything that is wrong with a job whose fields are each well-formed."""
    return tuple(problem for rule in _RULES for problem in rule(job))


def _name(job: TpuTrainingJob) -> Problems:
    name = job.metadata.name
    if len(name) > MAX_NAME:
        yield f"metadata.name: {shown(name)} has {len(name)} characters; at most {MAX_NAME}, as pods add to it"
    if not re.fullmatch(NAME_PATTERN, name):
        yield (
            f"metadata.name: {shown(name)} is not a DNS label; begin with a lower-case letter, "
            "go on with lower-case letters, digits and -, and do not end with -"
        )


def _accelerator(job: TpuTrainingJob) -> Problems:
    try:
        accelerator = job.accelerator
    except InvalidField as error:
        yield str(error)
        return
    spec, name = job.spec, job.spec.accelerator
    if spec.workers is not None and accelerator.is_multi_host:
        wanted = f"cpu:1x{accelerator.chips_per_host}" if not accelerator.is_tpu else _single_hosts(accelerator)
        yield f"spec.workers: a worker is one host, and {name} has {accelerator.hosts_per_slice}; ask for {wanted}"
    if job.slices > 1 and accelerator.is_tpu and not GENERATIONS[accelerator.generation].multislice:
        yield (
            f"spec.slices: {accelerator.generation} has no multislice, so slices of it cannot train together; "
            "ask for one larger slice"
        )
    elif job.slices > 1 and accelerator.is_tpu and not accelerator.is_multi_host:
        # docs.cloud.google.com, "Deploy TPU Multislices in GKE": multi-host node pools only.
        yield (
            f"spec.slices: {job.slices} slices of {name}, and GKE joins only multi-host slices; "
            f"ask for one larger slice, or for workers: {job.slices} if they need not talk"
        )
    flex = spec.capacity is not None and spec.capacity.flex_start
    if flex and accelerator.is_tpu and not GENERATIONS[accelerator.generation].flex_start:
        yield f"spec.capacity.flexStart: {accelerator.generation} is not offered with flex-start; leave it out"
    longest = _pod_suffix(job)
    if len(job.metadata.name) + longest > MAX_POD_NAME and len(job.metadata.name) <= MAX_NAME:
        yield (
            f"metadata.name: {shown(job.metadata.name)} has {len(job.metadata.name)} characters; at most "
            f"{MAX_POD_NAME - longest} for {job.hosts} hosts, as pod names hold slice and host"
        )


def _pod_suffix(job: TpuTrainingJob) -> int:
    # -w-SLICE-HOST-abcde
    last_host = (job.spec.workers or job.accelerator.hosts_per_slice) - 1
    return len("-w--") + len(str(job.slices - 1)) + len(str(last_host)) + len("-abcde")


def _single_hosts(accelerator: parse.Accelerator) -> str:
    generation = GENERATIONS[accelerator.generation]
    names = [f"{generation.name}-{size}" for size, shape in generation.sizes.items() if shape in generation.single_host]
    return " or ".join(names)


def _shape(job: TpuTrainingJob) -> Problems:
    spec = job.spec
    if spec.slices is not None and spec.workers is not None:
        yield "spec.workers: excludes slices; slices train together, workers are independent: keep one of them"
    if spec.trainer is not None:
        for field in ("command", "args", "framework"):
            if getattr(spec, field) is not None:
                yield f"spec.{field}: excludes trainer, which brings its own; keep one of them"
    elif spec.image is None and spec.command is None:
        yield "spec.trainer: is missing; describe a training run here, or give image and command"
    elif spec.image is None:
        yield "spec.image: is missing; command says what to run, image in what"
    elif spec.command is None:
        yield "spec.command: is missing; the image's own entry point cannot be seen from outside, so name the command"


def _placement(job: TpuTrainingJob) -> Problems:
    spec = job.spec
    if spec.capacity is not None:
        chosen = [
            name
            for name, is_chosen in (
                ("spot", spec.capacity.spot),
                ("computeClass", spec.capacity.compute_class is not None),
                ("reservation", spec.capacity.reservation is not None),
                ("flexStart", spec.capacity.flex_start),
                ("queuedProvisioning", spec.capacity.queued_provisioning is not None),
            )
            if is_chosen
        ]
        reservation = spec.capacity.reservation
        if reservation is not None and reservation.sub_block is not None and reservation.block is None:
            yield "spec.capacity.reservation.subBlock: is a part of a block; give block, too"
        if spec.capacity.queued_provisioning is not None and spec.queue is None:
            yield "spec.capacity.queuedProvisioning: Kueue asks for the machines, and the job has no queue; set queue"
        if len(chosen) > 1:
            yield f"spec.capacity: {' and '.join(chosen)} exclude each other; keep one"
    if spec.priority_class_name is not None and spec.priority_class_name.startswith("system-"):
        yield (
            f"spec.priorityClassName: {shown(spec.priority_class_name)} is for Kubernetes' own pods; use a class of "
            "your cluster's jobs"
        )
    for key, value in (spec.node_selector or {}).items():
        path = f'spec.nodeSelector["{key}"]'
        if key in OWNED_SELECTORS:
            yield f"{path}: is set by {OWNED_SELECTORS[key]}; leave it out"
        if key == parse.COUNT_LABEL and value not in ("1", "4", "8"):
            yield f"{path}: {shown(value)} is not a number of chips that a machine has: 1, 4 or 8"
    for i, toleration in enumerate(spec.tolerations or ()):
        if toleration.key == TERMINATION_TAINT:
            yield f"spec.tolerations[{i}].key: {TERMINATION_TAINT} announces the end of a machine; never tolerate it"
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            yield f"spec.tolerations[{i}].tolerationSeconds: goes with effect NoExecute alone; leave it out"
        if toleration.operator == "Exists" and toleration.value is not None:
            yield f"spec.tolerations[{i}].value: goes with operator Equal; with Exists leave it out"


OWNED_SELECTORS = {
    parse.ACCELERATOR_LABEL: "spec.accelerator",
    parse.TOPOLOGY_LABEL: "spec.accelerator",
    "cloud.google.com/gke-spot": "spec.capacity.spot",
    "cloud.google.com/gke-flex-start": "spec.capacity.flexStart",
    "cloud.google.com/gke-provisioning": "spec.capacity",
    "cloud.google.com/gke-queued": "spec.capacity.queuedProvisioning",
    "cloud.google.com/reservation-name": "spec.capacity.reservation.name",
    "cloud.google.com/reservation-project": "spec.capacity.reservation.project",
    "cloud.google.com/reservation-affinity": "spec.capacity.reservation",
    "cloud.google.com/reservation-blocks": "spec.capacity.reservation.block",
    "cloud.google.com/reservation-subblocks": "spec.capacity.reservation.subBlock",
    "cloud.google.com/compute-class": "spec.capacity.computeClass",
    "cloud.google.com/placement-policy-name": "spec.placement.policyName",
}
"""Node labels that other fields select by, together with what else they need."""


def _trainer(job: TpuTrainingJob) -> Problems:
    if job.spec.trainer is None:
        return
    try:
        json.dumps(job.spec.trainer, allow_nan=False)
    except (TypeError, ValueError) as error:
        yield f"spec.trainer: holds something that JSON does not have ({error}); use strings, numbers, lists, mappings"
        return
    yield from trainer_problems(job.spec.trainer)
    yield from trainer_contradictions(job.spec.trainer, devices=_devices(job), slices=job.slices)


UNITS_WITHOUT_WORKERS = "is for independent workers of one host each; set spec.workers, and an accelerator of one host"
UNITS_WITHOUT_DIRECTORY = "required for tasks of workers, which write their files there; give gs://BUCKET/PATH"
TRAINING_OF_WORKERS = "excludes a training run, whose hosts work together; leave workers out, or set trainer.task"


def _task(job: TpuTrainingJob) -> Problems:
    spec = job.spec
    task = TASK if spec.trainer is None else spec.trainer.get("task", TASK)
    if task in UNIT_TASKS and not _is_cpu(job):
        if spec.workers is None and (_devices(job) or 0) and job.hosts > 1:
            yield f"spec.trainer.task: {UNITS_WITHOUT_WORKERS}"
        if spec.checkpoint_dir is None:
            yield f"spec.checkpointDir: {UNITS_WITHOUT_DIRECTORY}"
    elif spec.trainer is not None and task == TASK and spec.workers is not None:
        yield f"spec.workers: {TRAINING_OF_WORKERS}"


def _is_cpu(job: TpuTrainingJob) -> bool:
    """Whether it runs on CPUs, where `tpujob run` gives it a directory."""
    try:
        return not job.accelerator.is_tpu
    except InvalidField:
        return False


def _devices(job: TpuTrainingJob) -> int | None:
    if job.spec.workers is not None:
        return None
    try:
        return job.hosts * job.accelerator.devices_per_host
    except InvalidField:
        return None


_RULES: tuple[Callable[[TpuTrainingJob], Problems], ...] = (
    _name,
    _accelerator,
    _shape,
    _trainer,
    _task,
    container_rules.environment,
    container_rules.storage,
    container_rules.pod_metadata,
    volume_rules.volumes,
    volume_rules.checkpoint_volume,
    volume_rules.copies_volume,
    code_source,
    volume_rules.code_place,
    _placement,
    placement_rules.placement,
    slice_counts,
    container_rules.amounts,
    spec_size,
)
