"""The pods that we foretell are those that JobSet and Kubernetes make, under the restricted profile."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.operator.manifests import container_manifest, manifest
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.pods import wait_for_pods
from tpujob_contract import kubernetes_names
from tpujob_operator.base.settings import Settings
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.jobset.expand import expand_pods
from tpujob_resource.rules.load import load_job

pytestmark = pytest.mark.control_plane

RANDOM_SUFFIX = len("-abcde")


@pytest.fixture(scope="module")
def restricted(control_plane: ControlPlane) -> Iterator[str]:
    name = "restricted-pods"
    control_plane.create_namespace(name, {"pod-security.kubernetes.io/enforce": "restricted"})
    yield name
    control_plane.api.delete(f"/api/v1/namespaces/{name}")


@pytest.mark.parametrize(
    "given",
    [
        manifest("one"),
        manifest("two-slices", slices=2, accelerator="cpu:2x1"),
        manifest("workers", workers=3, accelerator="cpu:1x1"),
        container_manifest("own-image", slices=2, accelerator="cpu:1x1"),
        manifest("a" * 49, slices=2),
    ],
    ids=lambda given: given["metadata"]["name"],
)
def test_the_pods_are_as_foretold(control_plane: ControlPlane, restricted: str, given: dict[str, Any]) -> None:
    given["metadata"]["namespace"] = restricted
    jobset = build_jobset(load_job(given), Settings())
    foretold = expand_pods(jobset)
    control_plane.api.create(f"/apis/{kubernetes_names.JOBSET_API_VERSION}/namespaces/{restricted}/jobsets", jobset)

    real = wait_for_pods(control_plane.api, restricted, jobset["metadata"]["name"], len(foretold))

    for pod, expected in zip(real, foretold, strict=True):
        assert pod["metadata"]["name"][:-RANDOM_SUFFIX] == expected.name
        assert expected.labels.items() <= pod["metadata"]["labels"].items()
        assert expected.annotations.items() <= pod["metadata"]["annotations"].items()
        assert pod["spec"].get("subdomain") == expected.subdomain
        # Kubernetes gives every pod of an Indexed Job its name as hostname; only a subdomain makes it resolvable.
        assert pod["spec"]["hostname"] == expected.hostname
        main = next(c for c in pod["spec"]["containers"] if c["name"] == "main")
        declared = {variable["name"] for variable in main["env"]}
        assert declared - set(expected.from_cluster) == set(expected.environ)
