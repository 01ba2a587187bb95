"""Rules that need arithmetic over a topology, or a schema: the operator and the CLI evaluate them.

The API server cannot evaluate all of them; each has the reason.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tpujob_resource.messages.error_messages import quoted
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.rules.limits import spec_size
from tpujob_resource.rules.slice_counts import rows_of_fewest_slices
from tpujob_resource.rules.table import MAX_NAME
from tpujob_resource.rules.trainer_rules import trainer_contradictions, trainer_problems
from tpujob_resource.topology.errors import InvalidField
from tpujob_resource.topology.names import SUB_SLICES

MAX_POD_NAME = 63

type Problems = Iterator[str]


@dataclass(frozen=True)
class Computed:
    """A rule that is evaluated by a function."""

    field: str
    """The field at fault."""
    refuses: str
    """What it refuses, for the reference."""
    reason: str
    """Why the API server does not evaluate all of it."""
    problems: Callable[[TpuTrainingJob], Problems]
    """Error messages about a job, each with its path."""


def _accelerator(job: TpuTrainingJob) -> Problems:
    try:
        hosts = job.accelerator.hosts_per_slice
    except InvalidField as error:
        yield str(error)
        return
    longest = _pod_suffix(job, hosts)
    length = len(job.metadata.name)
    if length + longest > MAX_POD_NAME and length <= MAX_NAME:
        yield (
            f"metadata.name: {quoted(job.metadata.name)} has {length} characters; at most "
            f"{MAX_POD_NAME - longest} for {job.hosts} hosts, as pod names hold slice and host"
        )


def _pod_suffix(job: TpuTrainingJob, hosts_per_slice: int) -> int:
    # -w-SLICE-HOST-abcde
    last_host = (job.spec.workers or hosts_per_slice) - 1
    return len("-w--") + len(str(job.slices - 1)) + len(str(last_host)) + len("-abcde")


def _sub_slice(job: TpuTrainingJob) -> Problems:
    pool = job.spec.placement.pool_topology if job.spec.placement is not None else None
    try:
        accelerator = job.accelerator
    except InvalidField:
        return  # the rule for the accelerator refuses it
    if pool is None or accelerator.generation != SUB_SLICES:
        return
    slice_shape, pool_shape = _shape(accelerator.topology), _shape(pool)
    is_part = len(pool_shape) == len(slice_shape) and all(
        whole % part == 0 for part, whole in zip(slice_shape, pool_shape, strict=True)
    )
    if not is_part or pool_shape == slice_shape:
        yield (
            f"spec.placement.poolTopology: {quoted(pool)} cannot be divided into several slices of "
            f"{accelerator.topology}; give the pool's topology"
        )


def _shape(topology: str) -> tuple[int, ...]:
    return tuple(int(length) for length in topology.split("x"))


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


def _devices(job: TpuTrainingJob) -> int | None:
    if job.spec.workers is not None:
        return None
    try:
        return job.hosts * job.accelerator.devices_per_host
    except InvalidField:
        return None


_ARITHMETIC = "arithmetic over the accelerator's topology"

RULES = (
    Computed(
        "spec.accelerator",
        "slices that do not exist, and a job whose name is too long for the names of its pods",
        "the API server knows the forms and sizes, and not the number of hosts",
        _accelerator,
    ),
    Computed("spec.placement.poolTopology", "a pool that the slices do not divide", _ARITHMETIC, _sub_slice),
    Computed(
        "spec.trainer",
        "what the trainer's schema and its rules do not allow, and a batch that does not divide over the devices",
        _ARITHMETIC + "; the schema and the rules between fields are in the definition, too",
        _trainer,
    ),
    Computed(
        "spec.minSlices",
        "a least number of slices over which the batch does not divide",
        _ARITHMETIC,
        rows_of_fewest_slices,
    ),
    Computed(
        "spec",
        "a spec of more bytes than every pod can repeat",
        "the definition counts the characters of command, args and env, the chart's admission policy those of all",
        spec_size,
    ),
)
