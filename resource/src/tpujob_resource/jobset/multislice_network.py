"""More than one network card between slices: an administrator's choice, off by default.

Machines of v6e and tpu7x have further network cards, and traffic between slices takes them only when pods see them:
through the node's own network, or through a claim of DRANET's. Never both: a pod on the node's network cannot claim
its devices (kubernetes-sigs/dranet). libtpu gets their names.

Cards of each machine: GoogleCloudPlatform/cluster-autoscaler:pkg/cloudprovider/gke/machinetypes/dranet.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.settings import JobSettings

type Object = dict[str, Any]

FURTHER_CARDS: Mapping[str, int] = {
    "ct6e-standard-1t": 1,
    "ct6e-standard-4t": 2,
    "ct6e-standard-8t": 4,
    "tpu7x-standard-4t": 2,
}
"""Network cards beyond the first, eth1 and up, by machine type."""
CLAIM = "multislice-network"


def further_cards(job: TpuTrainingJob, settings: JobSettings) -> int:
    """Network cards that the slices of this job use beside the first; 0 where nothing is to be done about them."""
    is_chosen = settings.multislice_host_network or bool(settings.multislice_claim_template)
    if not is_chosen or job.slices == 1:
        return 0
    return FURTHER_CARDS.get(job.accelerator.machine_type or "", 0)


def pod_network(job: TpuTrainingJob, settings: JobSettings) -> Object:
    """Fields of the pod by which it sees the cards."""
    if not further_cards(job, settings):
        return {}
    if settings.multislice_host_network:
        # Hosts find each other by the names of a Service, which the node's own resolver does not know.
        return {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return {"resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": settings.multislice_claim_template}]}


def resource_claims(job: TpuTrainingJob, settings: JobSettings) -> list[Object]:
    """What the main container takes of the pod's claims."""
    return [{"name": CLAIM}] if "resourceClaims" in pod_network(job, settings) else []


def network_flag(job: TpuTrainingJob, settings: JobSettings) -> str:
    """The libtpu flag that lists the network cards; empty where there are no additional ones."""
    cards = further_cards(job, settings)
    if not cards:
        return ""
    names = ",".join([*(f"eth{number}" for number in range(1, cards + 1)), "lo"])
    return f"--megascale_grpc_interface_prefixes={names}"
