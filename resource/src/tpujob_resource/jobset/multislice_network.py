"""Additional network cards for traffic between slices: an administrator enables them, they are off by default.

Machines of v6e and tpu7x have several network cards. Traffic between slices uses the additional ones only if pods have
access to them: with the host network, or with a DRANET resource claim. Never both: a pod on the host network cannot
claim devices (kubernetes-sigs/dranet). libtpu gets the names of the cards.

Cards of each machine: GoogleCloudPlatform/cluster-autoscaler:pkg/cloudprovider/gke/machinetypes/dranet.go.
"""

from collections.abc import Mapping
from typing import Any

from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.topology.libtpu_flags import ENVIRONMENT_VARIABLE, Flag, merge_flags, recommended_flags

type Object = dict[str, Any]

FURTHER_CARDS: Mapping[str, int] = {
    "ct6e-standard-1t": 1,
    "ct6e-standard-4t": 2,
    "ct6e-standard-8t": 4,
    "tpu7x-standard-4t": 2,
}
"""Number of additional network cards, eth1 and up, by machine type."""
CLAIM = "multislice-network"


def further_cards(job: TpuTrainingJob, settings: JobSettings) -> int:
    """The number of network cards that this job's slices use in addition to the first; 0 if not enabled or needed."""
    is_chosen = settings.multislice_host_network or bool(settings.multislice_claim_template)
    if not is_chosen or job.slices == 1:
        return 0
    return FURTHER_CARDS.get(job.accelerator.machine_type or "", 0)


def pod_network(job: TpuTrainingJob, settings: JobSettings) -> Object:
    """Fields of the pod that give it access to the additional cards."""
    if not further_cards(job, settings):
        return {}
    if settings.multislice_host_network:
        # Hosts find each other by DNS names of a Service, which the node's own resolver does not know.
        return {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return {"resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": settings.multislice_claim_template}]}


def resource_claims(job: TpuTrainingJob, settings: JobSettings) -> list[Object]:
    """The pod's resource claims that the main container uses."""
    return [{"name": CLAIM}] if "resourceClaims" in pod_network(job, settings) else []


def network_flag(job: TpuTrainingJob, settings: JobSettings) -> str:
    """The libtpu flag that lists the additional network cards; empty if there are none."""
    cards = further_cards(job, settings)
    if not cards:
        return ""
    names = ",".join([*(f"eth{number}" for number in range(1, cards + 1)), "lo"])
    return f"--megascale_grpc_interface_prefixes={names}"


def compiler_flags(job: TpuTrainingJob) -> tuple[Flag, ...]:
    """The recommended flags of a job that uses the trainer or MaxText, or asks for them; none on CPUs."""
    spec = job.spec
    is_known_program = spec.trainer is not None or spec.framework == "maxtext"
    chosen = spec.libtpu_flags or ("recommended" if is_known_program else "none")
    if chosen == "none" or not job.accelerator.is_tpu:
        return ()
    return recommended_flags(job.accelerator.generation, job.slices)


def libtpu_arguments(job: TpuTrainingJob, settings: JobSettings) -> str | None:
    """The value of LIBTPU_INIT_ARGS; None: the operator adds nothing to the job's own.

    A flag that the job sets in `spec.env` keeps the job's value. A value from a Secret or ConfigMap is not known here,
    and is not changed.
    """
    own = next((each for each in job.spec.env or () if each.name == ENVIRONMENT_VARIABLE), None)
    if own is not None and own.value is None:
        return None
    flags, network = compiler_flags(job), network_flag(job, settings)
    if not flags and not network:
        return None
    return " ".join(filter(None, (merge_flags(flags, (own and own.value) or ""), network)))
