"""Fields of `spec` that select machines: capacity, placement and tolerated taints."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tpujob_resource.models.fields import LabelKey, LabelValue, Part

ReservationName = Annotated[
    str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
]


class Reservation(Part):
    """A specific reservation of TPUs."""

    name: ReservationName
    """Name of the reservation."""
    project: (
        Annotated[str, StringConstraints(min_length=6, max_length=63, pattern=r"^[a-z]([-a-z0-9:.]*[a-z0-9])?$")] | None
    ) = None
    """Project that owns it, for a shared one. Default: the cluster's own project."""
    block: ReservationName | None = None
    """Block of the reservation. Default: any."""
    sub_block: ReservationName | None = None
    """Sub-block of that block. Default: any."""


class QueuedProvisioning(Part):
    """Machines that Kueue asks for, all at once, by a ProvisioningRequest of class queued-provisioning."""

    max_run_seconds: Annotated[int, Field(ge=600, le=604_800)] | None = None
    """Seconds that the machines are kept, at most 7 days. Default: what the ProvisioningRequestConfig says."""


class Capacity(Part):
    """How the machines are paid for: at most one of these. Default: on demand, or what the node pool is."""

    spot: bool | None = None
    """Spot machines: cheaper, and taken away at any time; pods then have 15 seconds to save."""
    reservation: Reservation | None = None
    """Machines of a reservation."""
    compute_class: LabelValue | None = None
    """GKE compute class, whose priorities choose among reservations, flex-start and spot."""
    flex_start: bool | None = None
    """Flex-start: waits for capacity, then keeps it for at most 7 days. Not for v4."""
    queued_provisioning: QueuedProvisioning | None = None
    """Flex-start with queued provisioning: Kueue starts the job when all its machines are there. Needs queue."""


class Toleration(Part):
    """A node taint that the job's pods may ignore. The TPU taint is tolerated anyway."""

    key: LabelKey
    """Key of the taint."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Equal or Exists. Default Equal."""
    value: LabelValue | None = None
    """Value of the taint, with Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Default: every effect."""
    toleration_seconds: Annotated[int, Field(ge=0, le=86400)] | None = None
    """Seconds to stay after a NoExecute taint appears. Default: for ever."""


class Placement(Part):
    """Where in the cluster the slices lie."""

    policy_name: LabelValue | None = None
    """Placement or workload policy of the node pools; multi-host tpu7x pools have one."""
    pool_topology: (
        Annotated[str, StringConstraints(max_length=32, pattern=r"^[1-9][0-9]*(x[1-9][0-9]*){1,2}$")] | None
    ) = None
    """Topology of the larger v6e node pools of which each slice is a part, such as 16x16. Needs queue."""
    dynamic_slice: bool | None = None
    """Whether the slice controller of Kueue forms tpu7x slices: from cubes of 4x4x4 chips, or as parts of a cube from
    2x2x1 chips up, which needs GKE 1.36. Needs queue, and a name of at most 28 characters."""
    required_topology: LabelKey | None = None
    """Topology level (a node label such as cloud.google.com/gke-nodepool) that holds all hosts of a slice, for Kueue's
    topology-aware scheduling. Needs queue. Default: one node pool for each multi-host slice, kept by JobSet."""
