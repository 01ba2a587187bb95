"""Volumes of a job: in the pod, and refused where checkpoints would be lost on them."""

from typing import Any

import pytest

from tests.operator.manifests import manifest
from tests.resource.api.test_load import GOOD
from tpujob_resource.errors import InvalidJob
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.jobset.expand import expand_pods
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job

OWN = {"tmp", "home", "shared-memory"}


def test_volumes_of_every_kind_reach_the_pod() -> None:
    pod = expand_pods(build_jobset(load_job(GOOD["volumes"]), JobSettings()))[0]
    volumes = {v.pop("name"): v for v in map(dict, pod.spec["volumes"])}
    assert {name: source for name, source in volumes.items() if name not in OWN} == {
        "ckpt": {"persistentVolumeClaim": {"claimName": "claim"}},
        "data": {
            "csi": {
                "driver": "gcsfuse.csi.storage.gke.io",
                "readOnly": True,
                "volumeAttributes": {"bucketName": "b-1", "mountOptions": "o"},
            }
        },
        "scratch": {"emptyDir": {"sizeLimit": "10Gi"}},
        "keys": {"secret": {"secretName": "s"}},
        "conf": {"configMap": {"name": "c"}},
    }
    mounts = {m["name"]: (m["mountPath"], m.get("readOnly", False)) for m in pod.container["volumeMounts"]}
    assert {name: mount for name, mount in mounts.items() if name not in OWN} == {
        "ckpt": ("/ckpt", False),
        "data": ("/data", True),
        "scratch": ("/scratch", False),
        "keys": ("/keys", True),
        "conf": ("/conf", True),
    }
    assert pod.annotations["gke-gcsfuse/volumes"] == "true"
    assert (pod.labels["team"], pod.annotations["example.com/cost"]) == ("a", "research")


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
