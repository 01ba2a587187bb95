"""What the person who installs the operator decides, read from the environment once at start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Self

VERSION = metadata.version("tpujob-operator")
"""Of this distribution, and so of its images and its chart."""
PULL_POLICIES = ("Always", "IfNotPresent", "Never")


class InvalidSetting(ValueError):  # noqa: N818
    """A variable of the operator's own environment has a value that cannot work."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the operator; the variable of each is `OPERATOR_` and its name in capitals."""

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
    watch_namespaces: tuple[str, ...] = ()
    """Namespaces that the operator serves, comma-separated in the environment; empty: all."""
    identity: str = ""
    """Name of this replica in the Lease; the chart gives the pod's name. Empty: the host's name."""
    leader_election: bool = False
    """Whether to write only while holding the Lease; the chart turns it on. Without it, run one operator."""
    report_interval_seconds: float = 5.0
    """How often the progress of a running job is read until it has made a step."""
    progress_interval_seconds: float = 30.0
    """How often it is read and written after that; phases, conditions and restarts are written at once."""
    stalled_after_seconds: float = 600.0
    """Without a new step for this long, training counts as stalled; three times as long for restoring or compiling."""
    restart_pause_seconds: float = 10.0
    """Pause before the second restart in a row without progress; doubles with each further one, up to 5 minutes."""
    network_policies: bool = True
    """Whether each job gets a NetworkPolicy that closes its ports to others."""
    resync_seconds: float = 300.0
    """How often every job is looked at although nothing was heard of it."""
    health_port: int = 8080
    """Port of /healthz."""
    metrics_port: int = 9090
    """Port of the operator's own /metrics."""
    log_level: str = "INFO"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Settings of this process; variables that are absent or empty keep their defaults.

        Raises:
            InvalidSetting: a value cannot work, or an `OPERATOR_` variable is unknown.
        """
        return cls(**_read(environ))  # type: ignore[arg-type]

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
        for name in (
            "report_interval_seconds",
            "progress_interval_seconds",
            "restart_pause_seconds",
            "resync_seconds",
            "stalled_after_seconds",
        ):
            if not 0 < getattr(self, name) <= 86400:
                raise InvalidSetting(f"OPERATOR_{name.upper()}={getattr(self, name)} is not between 0 and 86400")
        for name in ("max_pods", "max_chips"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"OPERATOR_{name.upper()}={getattr(self, name)} allows no job; give 1 or more")
        if not 5 <= self.spot_grace_seconds <= 120:
            raise InvalidSetting(f"OPERATOR_SPOT_GRACE_SECONDS={self.spot_grace_seconds} is not between 5 and 120")
        for name in ("health_port", "metrics_port"):
            if not 0 <= getattr(self, name) <= 65535:
                raise InvalidSetting(f"OPERATOR_{name.upper()}={getattr(self, name)} is not a port")


PREFIX = "OPERATOR_"
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)|_PORT_[0-9]+_")
"""What Kubernetes adds for a Service that happens to be called `operator…`; its OPERATOR_…_PORT is a tcp:// URL."""


def _read(environ: Mapping[str, str]) -> dict[str, object]:
    defaults = Settings.__dataclass_fields__
    values: dict[str, object] = {}
    for key, text in environ.items():
        if not key.startswith(PREFIX) or not text.strip() or _SERVICE_LINK.search(key) or "://" in text:
            continue
        name = key.removeprefix(PREFIX).lower()
        if name not in defaults:
            known = ", ".join(PREFIX + field.upper() for field in defaults)
            raise InvalidSetting(f"{key} is not a setting of the operator; known: {known}")
        values[name] = _convert(key, text.strip(), defaults[name].default)
    return values


def _convert(key: str, text: str, default: object) -> object:
    if isinstance(default, tuple):
        return tuple(word for word in re.split(r"[,\s]+", text) if word)
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise InvalidSetting(f"{key}={text!r} is neither true nor false")
        return text.lower() == "true"
    for kind in (int, float):
        if isinstance(default, kind):
            try:
                return kind(text)
            except ValueError as error:
                raise InvalidSetting(f"{key}={text!r} is not a number") from error
    return text
