"""TpuTrainingJobs as people write them: state only what the case is about."""

from typing import Any

from tpujob_resource.topology.errors import InvalidField
from tpujob_resource.topology.parse import COUNT_LABEL, parse_accelerator

TRAINER: dict[str, Any] = {"model": {"preset": "tiny"}, "data": {"path": "gs://bucket/text/*.parquet"}, "steps": 10}


TINY_ROWS = 16
"""Of a global batch of the preset tiny."""


def _devices(fields: dict[str, Any]) -> int | None:
    count = (fields.get("nodeSelector") or {}).get(COUNT_LABEL)
    try:
        slices = int(fields.get("slices") or 1)
        text = fields["accelerator"]
        accelerator = parse_accelerator(text, chips_per_host=int(count) if count else None, slices=slices)
        return accelerator.hosts_per_slice * accelerator.devices_per_host * slices
    except (InvalidField, AttributeError, TypeError, ValueError):
        return None


def manifest(name: str = "llama", **spec: Any) -> dict[str, Any]:
    """A valid job of two CPU hosts with a trainer block; keywords are fields of the spec, None removes one."""
    fields = {"accelerator": "cpu:2x4", "trainer": TRAINER, **spec}
    if "trainer" not in spec and (devices := _devices(fields)):
        # As many rows as devices, where the preset's do not divide.
        trainer = {**TRAINER, "task": "probe"} if "workers" in spec else TRAINER  # workers do not train together
        fields["trainer"] = trainer if TINY_ROWS % devices == 0 else {**trainer, "batchSize": devices}
    return {
        "apiVersion": "tpujob.dev/v1beta1",
        "kind": "TpuTrainingJob",
        "metadata": {"name": name},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def container_manifest(name: str = "mine", **spec: Any) -> dict[str, Any]:
    """A valid job of somebody's own image."""
    return manifest(
        name, **{"trainer": None, "image": "example.com/mine:1", "command": ["python3", "train.py"], **spec}
    )
