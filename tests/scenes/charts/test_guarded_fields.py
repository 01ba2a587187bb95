"""Each field of a job is asked about by the admission policy, or gives no more than the right to create pods gives."""

import functools
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML

from tests.charts.rendered import CHART
from tests.scenes.charts.test_admission_policy import REFUSED

ASKED = {
    "serviceAccountName",
    "priorityClassName",
    "imagePullSecrets.name",
    "env.valueFrom.secretKeyRef.name",
    "env.valueFrom.configMapKeyRef.name",
    "volumes.secret",
    "volumes.configMap",
}
"""They name an object of the cluster about which the API server's authorizer can be asked."""
AS_ANY_POD = {
    # Size and machines: a pod that somebody writes asks for them in the same way, and a ResourceQuota counts them.
    *(
        "accelerator",
        "slices",
        "minSlices",
        "workers",
        "resources",
        "capacity",
        "nodeSelector",
        "placement",
        "tolerations",
        "queue",
    ),
    # How often a container starts its program again, and when it ends it, as its own command could.
    *("inPlaceRestarts", "silenceSeconds"),
    # What runs, in the restricted profile and without a token.
    *("image", "imagePullPolicy", "command", "args", "framework", "libtpuFlags", "trainer"),
    *("env.name", "env.value", "podLabels", "podAnnotations"),
    # Fetched and read by the pod's own ServiceAccount, or from a volume of this list.
    *("code", "packages", "checkpointDir"),
    # Kubernetes knows no right to use a claim of the namespace, and asks none of who writes a pod.
    "volumes.persistentVolumeClaim",
    # Cloud Storage asks the pod's ServiceAccount, about which the policy has asked.
    "volumes.gcs",
    *("volumes.name", "volumes.mountPath", "volumes.readOnly", "volumes.emptyDir"),
    # A key within an object about which the policy has asked.
    *(f"env.valueFrom.{kind}.{field}" for kind in ("secretKeyRef", "configMapKeyRef") for field in ("key", "optional")),
    # Another controller asks for its own rights; a pod names its scheduler in the same way.
    "managedBy",
    # When it runs, and for how long.
    *("suspend", "restarts", "retry", "ttlSecondsAfterFinished", "activeDeadlineSeconds"),
    *("startupSeconds", "gracePeriodSeconds", "shrinkAfterSeconds", "growAfterSeconds"),
}
"""With all that is below them. A new field has to be put here with its reason, or be asked about."""


def leaves(properties: dict[str, Any], above: str = "") -> Iterator[str]:
    """The paths of all fields; lists and objects are passed through."""
    for name, schema in properties.items():
        path = f"{above}{name}"
        inner = schema.get("properties") or schema.get("items", {}).get("properties")
        if inner and path != "trainer":
            yield from leaves(inner, f"{path}.")
        else:
            yield path


@functools.cache
def fields() -> frozenset[str]:
    definition = YAML(typ="safe", pure=True).load(CHART / "crd" / "tputrainingjobs.yaml")
    version = definition["spec"]["versions"][0]
    return frozenset(leaves(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]))


def named(value: Any, above: str = "") -> Iterator[str]:
    """The paths that somebody's spec has."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from named(inner, f"{above}.{key}" if above else key)
    elif isinstance(value, list):
        for inner in value:
            yield from named(inner, above)
    else:
        yield above


def test_every_field_is_asked_about_or_as_any_pod() -> None:
    known = {field for field in fields() if any(f"{field}.".startswith(f"{each}.") for each in AS_ANY_POD)}
    assert fields() - known - ASKED == set()
    assert known & ASKED == set()


def test_no_field_is_listed_that_is_gone() -> None:
    assert fields() >= ASKED
    assert [each for each in AS_ANY_POD if not any(f"{field}.".startswith(f"{each}.") for field in fields())] == []


def test_every_field_that_is_asked_about_is_seen_refused() -> None:
    seen = {path for _, spec, words in REFUSED for path in named(spec) if "create pods" not in words}
    assert seen >= ASKED
