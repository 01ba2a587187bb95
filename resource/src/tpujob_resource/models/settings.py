"""What the person who installs the operator decides about every JobSet."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

VERSION = metadata.version("tpujob-resource")
"""Of all our distributions, and so of the images and the chart."""
PULL_POLICIES = ("Always", "IfNotPresent", "Never")


class InvalidSetting(ValueError):  # noqa: N818
    """A variable of the operator's own environment has a value that cannot work."""


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """The settings that a JobSet is made with; the variable of each is `OPERATOR_` and its name in capitals."""

    trainer_image: str = f"tpujob-trainer:{VERSION}"
    """Image of jobs that have a `trainer` block."""
    operator_image: str = f"tpujob-operator:{VERSION}"
    """The operator's own image, whose launcher is carried into images that lack it."""
    image_pull_policy: str | None = None
    """For pods whose job says nothing; None leaves it to Kubernetes."""
    run_as_user: int = 10001
    """Numeric user of all job pods: `runAsNonRoot` cannot judge the name that an image may use."""
    privileged: bool = False
    """Whether the main container is privileged, where libtpu cannot open its chips otherwise. Breaks the restricted
    and baseline pod security profiles."""
    add_capabilities: tuple[str, ...] = ()
    """Capabilities of the main container, such as SYS_RESOURCE; comma-separated in the environment."""
    multislice_host_network: bool = False
    """Whether several slices of v6e or tpu7x talk over all network cards of their nodes, by `hostNetwork`. Breaks the
    restricted and baseline pod security profiles, and NetworkPolicies do not apply to such pods."""
    multislice_claim_template: str = ""
    """The same without `hostNetwork`: a ResourceClaimTemplate in the namespace of each job, whose claim DRANET fills
    with the network cards."""
    spot_grace_seconds: int = 15
    """Most seconds that ordinary pods get on spot machines, whatever they ask; 120 at most, where a pool extends it."""
    machine_requests: bool = True
    """Whether TPU pods that say nothing request 80 % of their machine's processors and memory."""
    max_pods: int = 4096
    """Most pods of one job."""
    max_chips: int = 16384
    """Most TPU chips of one job."""
    namespace: str = "tpujob-system"
    """Where the operator runs: its Lease is here, and it is let through to /report."""
    monitoring_namespace: str = "monitoring"
    """Where Prometheus runs: it is let through to /metrics."""

    def __post_init__(self) -> None:
        if self.image_pull_policy not in (None, *PULL_POLICIES):
            raise InvalidSetting(
                f"OPERATOR_IMAGE_PULL_POLICY={self.image_pull_policy!r} is none of {', '.join(PULL_POLICIES)}"
            )
        if self.multislice_host_network and self.multislice_claim_template:
            raise InvalidSetting(
                "OPERATOR_MULTISLICE_HOST_NETWORK and OPERATOR_MULTISLICE_CLAIM_TEMPLATE exclude each other: a pod on "
                "the node's network cannot claim its network cards"
            )
        if self.run_as_user < 1:
            raise InvalidSetting(f"OPERATOR_RUN_AS_USER={self.run_as_user} is root; give a user id from 1 up")
        for name in ("max_pods", "max_chips"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"OPERATOR_{name.upper()}={getattr(self, name)} allows no job; give 1 or more")
        if not 5 <= self.spot_grace_seconds <= 120:
            raise InvalidSetting(f"OPERATOR_SPOT_GRACE_SECONDS={self.spot_grace_seconds} is not between 5 and 120")
