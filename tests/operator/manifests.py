"""TpuTrainingJobs as people write them: state only what the case is about."""

from typing import Any

TRAINER: dict[str, Any] = {"model": {"preset": "tiny"}, "data": {"path": "gs://bucket/text/*.parquet"}, "steps": 10}


def manifest(name: str = "llama", **spec: Any) -> dict[str, Any]:
    """A valid job of two CPU hosts with a trainer block; keywords are fields of the spec, None removes one."""
    fields = {"accelerator": "cpu:2x4", "trainer": TRAINER, **spec}
    return {
        "apiVersion": "tpujob.dev/v1alpha1",
        "kind": "TpuTrainingJob",
        "metadata": {"name": name},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def container_manifest(name: str = "mine", **spec: Any) -> dict[str, Any]:
    """A valid job of somebody's own image."""
    return manifest(
        name, **{"trainer": None, "image": "example.com/mine:1", "command": ["python3", "train.py"], **spec}
    )
