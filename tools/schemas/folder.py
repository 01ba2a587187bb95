"""The schemas of one Kubernetes version, in files with the names that kubeconform expects."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from ruamel.yaml import YAML

from tools.localcluster import kept
from tools.schemas.sources import (
    KUBERNETES,
    MONITORING_DEFINITIONS,
    OPENAPI,
    PROMETHEUS_OPERATOR,
    downloaded,
)
from tools.schemas.strict import Schema, definitions_of, kinds_of, of_custom_resource

CACHE = kept.FOLDER / "schemas"
LOCATION = "{{.ResourceKind}}{{.KindSuffix}}.json"
"""kubeconform's template of a file name."""
DEFINITIONS = "_definitions.json"


def schemas(minor: str) -> Path:
    """The folder for a Kubernetes version such as `1.31`, created now unless it is up to date.

    Raises:
        ToolsUnavailable: There is no Go, or no network to fetch the definitions.
    """
    made_from = repr((KUBERNETES[minor], PROMETHEUS_OPERATOR)).encode() + _own_code()
    folder = CACHE / f"{minor}-{hashlib.sha256(made_from).hexdigest()[:12]}"
    with kept.exclusively(CACHE):
        if not folder.exists():
            for old in CACHE.glob(f"{minor}-*"):
                shutil.rmtree(old)
            unfinished = CACHE / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            _write(minor, unfinished, folder)
            unfinished.rename(folder)
    return folder


def _write(minor: str, folder: Path, final: Path) -> None:
    # kubeconform resolves relative references from its working directory, hence the absolute final path.
    openapi = json.loads((downloaded(KUBERNETES[minor]) / OPENAPI).read_text())
    (folder / DEFINITIONS).write_text(json.dumps({"definitions": definitions_of(openapi)}))
    for key, name in kinds_of(openapi).items():
        (folder / file_name(*key)).write_text(json.dumps({"$ref": f"{final / DEFINITIONS}#/definitions/{name}"}))
    for key, schema in _monitoring():
        (folder / file_name(*key)).write_text(json.dumps(schema))


def _monitoring() -> Iterator[tuple[tuple[str, str, str], Schema]]:
    folder = downloaded(PROMETHEUS_OPERATOR) / MONITORING_DEFINITIONS
    for name in ("podmonitors", "servicemonitors", "prometheusrules"):
        definition = YAML(typ="safe").load((folder / f"monitoring.coreos.com_{name}.yaml").read_text())
        yield from of_custom_resource(definition).items()


def file_name(group: str, version: str, kind: str) -> str:
    """The file name of a kind's schema, as in `LOCATION`."""
    group = f"-{group.partition('.')[0]}" if group else ""
    return f"{kind}{group}-{version}.json".lower()


def _own_code() -> bytes:
    return b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
