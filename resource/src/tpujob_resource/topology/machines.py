"""vCPUs and memory of GKE's TPU machine types.

Source: GoogleCloudPlatform/cluster-autoscaler:pkg/cloudprovider/gke/machinetypes/deprecated_machine_types_config.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """The resources of a machine; the kubelet reserves a part of them."""

    cpus: int
    """vCPUs."""
    memory_gib: int
    """Host memory, GiB."""


MACHINES: Mapping[str, Machine] = {
    "ct3-hightpu-4t": Machine(96, 340),
    "ct3p-hightpu-4t": Machine(48, 340),
    "ct4p-hightpu-4t": Machine(240, 407),
    "ct5lp-hightpu-1t": Machine(24, 48),
    "ct5lp-hightpu-4t": Machine(112, 192),
    "ct5lp-hightpu-8t": Machine(224, 384),
    "ct5p-hightpu-4t": Machine(208, 448),
    "ct6e-standard-1t": Machine(44, 176),
    "ct6e-standard-4t": Machine(180, 720),
    "ct6e-standard-8t": Machine(180, 1440),
    "tpu7x-standard-1t": Machine(56, 248),
    "tpu7x-standard-4t": Machine(224, 992),
}

REQUESTED_PERCENT = 80
"""Part of a machine that its only TPU pod requests: the rest is for the kubelet, the system and DaemonSets.

apple/axlearn:axlearn/cloud/gcp/jobset_utils.py requests the same. Without requests the pod would be BestEffort, because
Kubernetes' QoS classes consider only CPU and memory: the first to be evicted or killed when memory is short.
"""
SHARED_MEMORY_PERCENT = 20
"""Part of a machine's memory for /dev/shm; it counts as the pod's memory. Kubernetes' own default is 64 MiB."""


def requested(machine_type: str) -> dict[str, str]:
    """The requests of a machine's pod, as Kubernetes quantities."""
    machine = MACHINES[machine_type]
    return {
        "cpu": str(machine.cpus * REQUESTED_PERCENT // 100),
        "memory": f"{machine.memory_gib * REQUESTED_PERCENT // 100}Gi",
    }


def shared_memory(machine_type: str) -> str:
    """Size limit of /dev/shm, as a Kubernetes quantity."""
    return f"{MACHINES[machine_type].memory_gib * SHARED_MEMORY_PERCENT // 100}Gi"
