"""The `gcloud` commands that create or delete the node pools of a job. Nothing here runs them.

Flags as in the reference of `gcloud container node-pools create`; those of flex-start, queued provisioning and workload
policies as in AI-Hypercomputer/xpk:src/xpk/core/capacity.py and src/xpk/core/nodepool.py.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod

from tpujob.output.errors import CommandError
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.scheduling import Capacity, Reservation

type Command = tuple[str, ...]
"""The words of a command; `$CLUSTER` and `$ZONE` are variables of the user's shell."""

SHELL_WIDTH = 110
"""Characters of a line of `shell_lines`."""
LONGEST_NAME = 40
"""Characters of a node pool's name."""
_OF_GKE = ("cloud.google.com/", "kubernetes.io/", "topology.kubernetes.io/", "node.kubernetes.io/")
PLACE = ("--cluster=$CLUSTER", "--location=$ZONE")


@dataclass(frozen=True, kw_only=True)
class NodePools:
    """Identical node pools: one for each multi-host slice, or one for all single-host slices."""

    names: tuple[str, ...]
    machine_type: str
    machines: int
    """Of each pool; the maximum of one that scales from zero."""
    topology: str | None
    """For `--tpu-topology`; None: the slices have a single host, or the policy defines the topology."""
    policy: str | None
    """Name of the placement or workload policy."""
    makes_policy: bool
    """Whether `creation` creates the policy, because the job names none and needs one."""
    policy_topology: str
    """The topology of a workload policy."""
    labels: Mapping[str, str]
    """The labels of `spec.nodeSelector` that GKE does not set by itself."""
    capacity: Capacity

    @property
    def grows_from_zero(self) -> bool:
        """Whether the pools have machines only while a job asks for them."""
        return bool(self.capacity.flex_start) or self.capacity.queued_provisioning is not None


def node_pools(job: TpuTrainingJob) -> NodePools:
    """The pools that give a job all its machines.

    Raises:
        CommandError: there is no pool to create for such a job.
    """
    accelerator, placement, capacity = job.accelerator, job.spec.placement, job.spec.capacity or Capacity()
    if accelerator.machine_type is None:
        raise CommandError(
            f"spec.accelerator: {accelerator.name} runs on any machine of a cluster and needs no TPU nodes"
        )
    if capacity.compute_class is not None:
        raise CommandError(
            f"spec.capacity.computeClass: GKE creates the node pools of {capacity.compute_class} by itself"
        )
    if placement is not None and placement.dynamic_slice:
        raise CommandError(
            "spec.placement.dynamicSlice: the node pools of 4x4x4 cubes belong to the whole cluster; create them as "
            "the slice controller of Kueue asks for"
        )
    topology, hosts, count = accelerator.topology, accelerator.hosts_per_slice, job.spec.workers or job.slices
    if placement is not None and placement.pool_topology is not None:
        topology = placement.pool_topology
        chips = prod(map(int, topology.split("x")))
        hosts, count = chips // accelerator.chips_per_host, ceil(count * accelerator.chips / chips)
    kind = "-spot" if capacity.spot else "-flex" if capacity.flex_start or capacity.queued_provisioning else ""
    shape, name = f"{accelerator.generation}-{topology}{kind}", job.metadata.generate_name or job.metadata.name
    names: tuple[str, ...]
    if hosts == 1:
        # Each machine is a slice of its own: one pool has them all.
        names, machines = (_pool_name(name, shape),), count
    else:
        names, machines = tuple(_pool_name(name, f"{shape}-{number}") for number in range(count)), hosts
    policy = placement.policy_name if placement is not None else None
    makes_policy = policy is None and accelerator.generation == "tpu7x" and hosts > 1
    if makes_policy:
        policy = f"tpu7x-{topology}"
    return NodePools(
        names=names,
        machine_type=accelerator.machine_type,
        machines=machines,
        topology=None if hosts == 1 or policy is not None else topology,
        policy=policy,
        makes_policy=makes_policy,
        policy_topology=topology,
        labels={key: value for key, value in (job.spec.node_selector or {}).items() if not key.startswith(_OF_GKE)},
        capacity=capacity,
    )


def _pool_name(job: str, shape: str) -> str:
    """A name for a pool of one job alone, so that deleting it takes no machines from others of that shape."""
    room = LONGEST_NAME - len(shape) - 1
    job = job.rstrip("-")
    if len(job) > room:
        job = f"{job[: room - 5].rstrip('-')}-{hashlib.sha256(job.encode()).hexdigest()[:4]}"
    return f"{job}-{shape}"


def creation(pools: NodePools) -> Iterator[Command]:
    """The commands that create the pools, and first the workload policy that they need."""
    if pools.makes_policy and pools.policy is not None:
        yield (
            *("gcloud", "compute", "resource-policies", "create", "workload-policy", pools.policy),
            "--region=${ZONE%-*}",
            "--type=HIGH_THROUGHPUT",
            f"--accelerator-topology={pools.policy_topology}",
        )
    for name in pools.names:
        yield ("gcloud", "container", "node-pools", "create", name, *PLACE, *_flags(pools), *_together(pools))


def deletion(pools: NodePools) -> Iterator[Command]:
    """The commands that delete the pools, and with them their machines."""
    for name in pools.names:
        yield ("gcloud", "container", "node-pools", "delete", name, *PLACE, *_together(pools))


def _together(pools: NodePools) -> Iterator[str]:
    """Several commands do not wait for one another, each of which takes minutes."""
    if len(pools.names) > 1:
        yield "--async"


def _flags(pools: NodePools) -> Iterator[str]:
    yield f"--machine-type={pools.machine_type}"
    if pools.topology is not None:
        yield f"--tpu-topology={pools.topology}"
    if pools.policy is not None:
        yield f"--placement-policy={pools.policy}"
    if pools.labels:
        yield "--node-labels=" + ",".join(f"{key}={value}" for key, value in sorted(pools.labels.items()))
    if pools.grows_from_zero:
        # With flex-start, GKE supports neither auto-repair nor reservations.
        yield from ("--num-nodes=0", "--enable-autoscaling", f"--max-nodes={pools.machines}", "--location-policy=ANY")
        yield from ("--flex-start", "--reservation-affinity=none", "--no-enable-autorepair")
    else:
        yield f"--num-nodes={pools.machines}"
    if pools.capacity.queued_provisioning is not None:
        yield "--enable-queued-provisioning"
    if pools.capacity.spot:
        yield "--spot"
    if pools.capacity.reservation is not None:
        yield "--reservation-affinity=specific"
        yield f"--reservation={_path(pools.capacity.reservation)}"


def _path(reservation: Reservation) -> str:
    path = reservation.name
    if reservation.project is not None:
        path = f"projects/{reservation.project}/reservations/{path}"
    if reservation.block is not None:
        path += f"/reservationBlocks/{reservation.block}"
    if reservation.block is not None and reservation.sub_block is not None:
        path += f"/reservationSubBlocks/{reservation.sub_block}"
    return path


def shell_lines(command: Command) -> str:
    """A command as input for a shell, wrapped with backslashes."""
    lines, line = [], ""
    for word in command:
        if line and len(line) + len(word) + 1 > SHELL_WIDTH:
            lines.append(line + " \\")
            line = "  " + word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])
