"""Checkpoints are refused on volumes where they would be lost."""

from typing import Any

import pytest

from tests.operator.manifests import manifest
from tpujob_resource.rules.load import load_job
from tpujob_resource.topology.errors import InvalidJob


@pytest.mark.parametrize(
    ("directory", "volume", "words"),
    [
        ("/ckpt/llama", {"persistentVolumeClaim": "c"}, None),
        ("/ckpt", {"gcs": {"bucket": "bucket"}}, None),
        ("gs://bucket/x", {"emptyDir": {}}, None),
        ("/ckpts", {"persistentVolumeClaim": "c"}, "is on no volume"),
        ("/ckpt/llama", {"emptyDir": {}}, "is on a volume that does not outlive the pod"),
        ("/ckpt/llama", {"secret": "s"}, "is on a volume that does not outlive the pod"),
        (
            "/ckpt/llama",
            {"persistentVolumeClaim": "c", "readOnly": True},
            "is on a volume that is readOnly; drop readOnly",
        ),
    ],
    ids=str,
)
def test_checkpoints_lie_where_they_last(directory: str, volume: dict[str, Any], words: str | None) -> None:
    volumes = [{"name": "v", "mountPath": "/ckpt", **volume}]
    given = manifest(accelerator="v5e-16", checkpointDir=directory, volumes=volumes)
    if words is None:
        load_job(given)
    else:
        with pytest.raises(InvalidJob, match=words):
            load_job(given)


def test_a_laptop_keeps_checkpoints_where_it_likes() -> None:
    load_job(manifest(checkpointDir="/home/me/ckpt"))
