"""The jobs by which `tpujob doctor --probe` tries what only a pod can tell, and what it makes of their ends."""

from typing import Any

import pytest

from tests.operator.manifests import TRAINER, container_manifest, manifest
from tpujob.cluster.probe import Probe, probes, verdict
from tpujob_resource.rules.load import load_job

WHO: dict[str, Any] = {
    "serviceAccountName": "trainer",
    "imagePullSecrets": [{"name": "registry"}],
    "env": [{"name": "A", "value": "b"}],
    "volumes": [{"name": "data", "mountPath": "/data", "persistentVolumeClaim": "data"}],
}
WHERE: dict[str, Any] = {
    "accelerator": "v5e-16",
    "slices": 2,
    "queue": "team-a",
    "capacity": {"spot": True},
    "nodeSelector": {"pool": "a"},
}
BUCKET = "gs://bucket/run"


def test_every_probe_is_a_valid_job_of_one_pod_without_a_tpu():
    for job in (manifest(**WHO, **WHERE, checkpointDir=BUCKET), container_manifest(**WHO, **WHERE)):
        for probe in probes(job):
            spec = probe.manifest["spec"]
            assert load_job(probe.manifest).hosts == 1
            assert {key: spec[key] for key in WHO} == WHO
            assert not spec.keys() & (WHERE.keys() - {"accelerator"})
            assert (spec["accelerator"], spec["activeDeadlineSeconds"]) == ("cpu:1x1", 300)
            assert probe.manifest["metadata"].keys() == {"name"}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (manifest(trainer=TRAINER, checkpointDir=BUCKET), [("bucket", None)]),
        (manifest(trainer=TRAINER, image="a/b:1", checkpointDir=BUCKET), [("bucket", "a/b:1")]),
        (manifest(trainer=TRAINER), [("image", None)]),
        (container_manifest(image="a/b:1"), [("image", "a/b:1")]),
        (container_manifest(image="a/b:1", checkpointDir=BUCKET), [("image", "a/b:1"), ("bucket", None)]),
    ],
    ids=["trainer", "trainer in an own image", "without a directory", "own program", "own program that saves"],
)
def test_image_and_bucket_are_tried_where_the_job_has_them(job, expected):
    found = list(probes(job))
    assert [(probe.subject, probe.manifest["spec"].get("image")) for probe in found] == expected
    # The image of a program of one's own has no trainer.
    assert all(
        ("task" in probe.manifest["spec"].get("trainer", {})) == (probe.success != "a/b:1 starts") for probe in found
    )


BLOCKED = {"type": "Blocked", "status": "True", "reason": "CannotStart", "message": "ErrImagePull: a/b:1"}
NO_NODE = {"type": "Blocked", "status": "True", "reason": "Unschedulable", "message": "no node"}
READY = "0 of 1 hosts are ready."


@pytest.mark.parametrize(
    ("status", "told", "words"),
    [
        ({"phase": "Succeeded"}, "ok", "it worked (a pod tried it, 7 s)"),
        ({"phase": "Failed", "failure": {"message": "cannot list"}}, "missing", "a pod tried it: cannot list"),
        ({"phase": "Invalid", "message": "spec.env"}, "missing", "a pod tried it: spec.env"),
        (
            {"phase": "Pending", "message": READY, "conditions": [BLOCKED]},
            "missing",
            "a pod tried it: ErrImage",
        ),
        (
            {"phase": "Pending", "message": READY, "conditions": [NO_NODE]},
            "missing",
            "a pod that tries it did not end in 7 s: no node",
        ),
        ({}, "missing", "a pod that tries it did not end in 7 s: the operator has not seen it"),
    ],
    ids=["success", "failure", "refused", "no image", "no node", "no operator"],
)
def test_the_verdict_follows_from_the_end(status, told, words):
    result = verdict(Probe("bucket", {}, "it worked"), status, 7.2)
    assert result.verdict == told
    assert result.found.startswith(words)
