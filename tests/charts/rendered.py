"""The chart as Helm renders it."""

import copy
import functools
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tools.localcluster import binaries

CHART = Path(__file__).parents[2] / "charts" / "tpujob-operator"
RELEASE = "tpujob-operator"
NAMESPACE = "tpujob-system"

type Object = dict[str, Any]


class RefusedValues(Exception):  # noqa: N818
    """Helm rendered nothing; the message is its own."""


def run_helm(*arguments: str | Path, stdin: str = "") -> str:
    """What a Helm command prints.

    Raises:
        RefusedValues: It ended with an error.
    """
    result = subprocess.run([binaries.path("helm"), *arguments], input=stdin, capture_output=True, text=True)
    if result.returncode != 0:
        raise RefusedValues(result.stdout + result.stderr)
    return result.stdout


def render_text(values: Mapping[str, Any] = {}, *, release: str = RELEASE) -> str:
    """All that `helm template` prints for these values."""
    return _render_text(json.dumps(values), release)


def render(values: Mapping[str, Any] = {}, *, release: str = RELEASE) -> list[Object]:
    """The objects of a release with these values. Twice the same key in one mapping is an error here."""
    return copy.deepcopy(_render(json.dumps(values), release))


def of_kind(kind: str, values: Mapping[str, Any] = {}, *, release: str = RELEASE) -> list[Object]:
    """The rendered objects of one kind."""
    return [document for document in render(values, release=release) if document["kind"] == kind]


def pod_template(values: Mapping[str, Any] = {}) -> Object:
    """The operator's pod."""
    [deployment] = of_kind("Deployment", values)
    template: Object = deployment["spec"]["template"]
    return template


@functools.cache
def _render(values: str, release: str) -> list[Object]:
    # Where a line holds nothing but dashes, Kubernetes' clients begin a new document; so an injected one counts.
    documents = re.split(r"^---[ \t]*$", _render_text(values, release), flags=re.MULTILINE)
    return [_parse(document) for document in documents if document.strip()]


def _parse(document: str) -> Object:
    # The strict parser takes a second for the long definition, which a generator wrote.
    is_definition = "\nkind: CustomResourceDefinition\n" in document
    parsed: Object = YAML(typ="safe", pure=not is_definition).load(document)
    return parsed


@functools.cache
def _render_text(values: str, release: str) -> str:
    # A Helm built from its module thinks of an old Kubernetes, hence the version.
    return run_helm(
        "template",
        release,
        CHART,
        "--namespace",
        NAMESPACE,
        "--kube-version",
        "1.35.0",
        # The chart wants to be told where its images are.
        "--set=image.preloaded=true",
        "--values",
        "-",
        stdin=values,
    )
