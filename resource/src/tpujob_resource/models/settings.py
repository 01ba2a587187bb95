"""The settings of an installation of the operator that apply to every JobSet."""

from dataclasses import dataclass
from importlib import metadata

VERSION = metadata.version("tpujob-resource")
"""The version of all our distributions, images and the chart."""
PULL_POLICIES = ("Always", "IfNotPresent", "Never")


class InvalidSetting(ValueError):  # noqa: N818
    """A variable of the operator's own environment has a value that cannot work."""


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """The settings for building a JobSet; the variable of each is `OPERATOR_` and its name in capitals."""

    trainer_image: str = f"tpujob-trainer:{VERSION}"
    """Image of jobs that have a `trainer` block."""
    operator_image: str = f"tpujob-operator:{VERSION}"
    """The operator's own image, from which the launcher is copied into pods whose image lacks it."""
    image_pull_policy: str | None = None
    """The policy for jobs that set none; None: Kubernetes' default."""
    run_as_user: int = 10001
    """Numeric user of all job pods, because `runAsNonRoot` cannot check a user name of an image."""
    privileged: bool = False
    """Whether the main container is privileged, for clusters where libtpu cannot open its chips otherwise. Violates the
    restricted and baseline pod security profiles."""
    add_capabilities: tuple[str, ...] = ()
    """Capabilities of the main container, such as SYS_RESOURCE; comma-separated in the environment."""
    multislice_host_network: bool = False
    """Whether several slices of v6e or tpu7x use all network cards of their nodes, with `hostNetwork`. Violates the
    restricted and baseline pod security profiles, and NetworkPolicies do not apply to such pods."""
    multislice_claim_template: str = ""
    """The same without `hostNetwork`: a ResourceClaimTemplate in the namespace of each job, for whose claim DRANET
    allocates the network cards."""
    spot_grace_seconds: int = 15
    """Most seconds of grace for ordinary pods on spot machines; up to 120 for node pools that extend it."""
    machine_requests: bool = True
    """Whether TPU pods without requests of their own request 80 % of their machine's CPU and memory."""
    max_pods: int = 4096
    """Most pods of one job."""
    max_chips: int = 16384
    """Most TPU chips of one job."""
    namespace: str = "tpujob-system"
    """Namespace of the operator and its Lease; NetworkPolicies let it reach the report port."""
    monitoring_namespace: str = "monitoring"
    """Namespace of Prometheus; NetworkPolicies let it reach the report port."""

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
