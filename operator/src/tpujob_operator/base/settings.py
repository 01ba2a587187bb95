"""The settings of an installation of the operator, read from the environment once at start."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from tpujob_contract.kubernetes_names import OWNER_LABEL
from tpujob_resource.models.settings import InvalidSetting, JobSettings


@dataclass(frozen=True, kw_only=True)
class Settings(JobSettings):
    """Settings of the operator; the variable of each is `OPERATOR_` and its name in capitals."""

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
    owner_label: str = OWNER_LABEL
    """Label of a TpuTrainingJob whose value metrics give as `owner`."""
    log_level: str = "INFO"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Settings of this process; variables that are absent or empty keep their defaults.

        Raises:
            InvalidSetting: a value cannot work, or an `OPERATOR_` variable is unknown.
        """
        return cls(**_read(environ))  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (
            "report_interval_seconds",
            "progress_interval_seconds",
            "restart_pause_seconds",
            "resync_seconds",
            "stalled_after_seconds",
        ):
            if not 0 < getattr(self, name) <= 86400:
                raise InvalidSetting(f"OPERATOR_{name.upper()}={getattr(self, name)} is not between 0 and 86400")
        for name in ("health_port", "metrics_port"):
            if not 0 <= getattr(self, name) <= 65535:
                raise InvalidSetting(f"OPERATOR_{name.upper()}={getattr(self, name)} is not a port")


PREFIX = "OPERATOR_"
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)|_PORT_[0-9]+_")
"""Variables that Kubernetes adds for a Service with a name `operator…`; its OPERATOR_…_PORT is a tcp:// URL."""


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
