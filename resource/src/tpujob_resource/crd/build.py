"""The CustomResourceDefinition, made from the models: `python -m tpujob_resource.crd [--check] [FILE]`."""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml  # comes with kopf

from tpujob_contract import kubernetes_names
from tpujob_contract.field_rules import Rule
from tpujob_resource.crd import accelerator_rules, change_rules
from tpujob_resource.crd.change_rules import size_rule
from tpujob_resource.crd.rule_cel import attach, attach_unique
from tpujob_resource.crd.structural_schema import Schema, structural
from tpujob_resource.models.spec import Spec
from tpujob_resource.models.status import Status
from tpujob_resource.rules import table
from tpujob_resource.rules.trainer_rules import block_rules, trainer_schema

FILE = Path("charts/tpujob-operator/crd/tputrainingjobs.yaml")
SHORT_NAME = "ttj"
_HEADER = """\
# Made by `python -m tpujob_resource.crd` from resource/src/tpujob_resource/models/spec.py; do not edit.
# yamllint disable rule:line-length
"""


def custom_resource_definition() -> dict[str, Any]:
    """The definition of TpuTrainingJob, ready to apply."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kubernetes_names.PLURAL}.{kubernetes_names.GROUP}"},
        "spec": {
            "group": kubernetes_names.GROUP,
            "names": {
                "kind": kubernetes_names.KIND,
                "listKind": f"{kubernetes_names.KIND}List",
                "plural": kubernetes_names.PLURAL,
                "singular": kubernetes_names.KIND.lower(),
                "shortNames": [SHORT_NAME],
                "categories": ["tpujob"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": kubernetes_names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _build_columns(),
                    "schema": {"openAPIV3Schema": _build_schema()},
                }
            ],
        },
    }


def _build_schema() -> Schema:
    spec = _build_spec()
    schema: Schema = {
        "type": "object",
        "description": "A training run, or any container, on the hosts of one or more TPU slices.",
        "required": ["spec"],
        "x-kubernetes-validations": change_rules.root_rules(),
        "properties": {
            "apiVersion": {"type": "string", "description": kubernetes_names.API_VERSION},
            "kind": {"type": "string", "description": kubernetes_names.KIND},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _build_status(),
        },
    }
    attach(schema, table.RULES)
    for at, field in table.UNIQUE:
        attach_unique(schema, at, field, table.TWICE)
    return schema


def _build_spec() -> Schema:
    spec = structural(Spec.model_json_schema(by_alias=True))
    spec["x-kubernetes-validations"] = [size_rule()]
    properties = spec["properties"]
    properties["accelerator"]["x-kubernetes-validations"] = accelerator_rules.accelerator_rules()
    properties["imagePullSecrets"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    for name in ("command", "args", "tolerations"):
        properties[name]["x-kubernetes-list-type"] = "atomic"
    for name in ("nodeSelector", "podLabels", "podAnnotations"):
        properties[name]["x-kubernetes-map-type"] = "atomic"
    properties["trainer"] = _build_trainer(properties["trainer"])
    return spec


WITH_EXPONENTS = ("steps", "tokens", "optimizer.warmupSteps")
"""Whole numbers that users write as 20e9. The API server reads a float, which an integer's schema allows but its CEL
does not: a rule that reads the field would refuse the resource. A number without a fraction works for both."""


def _build_trainer(plain: Schema) -> Schema:
    """The trainer's own schema: the API server refuses fields that are not in it."""
    published = trainer_schema()
    if published is None:
        return plain
    schema = {**structural(published), "description": plain["description"]}
    for path in WITH_EXPONENTS:
        node = schema
        for key in path.split("."):
            node = node["properties"][key]
        node |= {"type": "number", "multipleOf": 1}
        del node["format"]
    attach(schema, [rule for rule in block_rules() if not is_too_costly(rule)])
    return schema


def is_too_costly(rule: Rule) -> bool:
    """Whether a rule, a pattern for each item of a list, exceeds the API server's budget; the operator evaluates it."""
    return rule.at.endswith("[]") and any(condition.kind in ("matches", "differs") for condition in rule.when)


def _build_status() -> Schema:
    status = structural(Status.model_json_schema(by_alias=True, mode="serialization"))
    # The operator omits fields that it does not know.
    status.pop("required", None)
    status["properties"]["conditions"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return status


def _build_columns() -> list[dict[str, Any]]:
    columns = [
        ("Accelerator", "string", ".spec.accelerator", "One slice", 0),
        ("Phase", "string", ".status.phase", "Where the job stands", 0),
        ("Hosts", "string", ".status.ready", "Hosts that have arrived, of all", 0),
        ("Step", "integer", ".status.step", "Training step", 0),
        ("Tokens/s", "integer", ".status.progress.tokensPerSecond", "Tokens per second of the whole job", 0),
        ("Checkpoint", "date", ".status.lastCheckpointTime", "Age of the last committed checkpoint", 0),
        ("Age", "date", ".metadata.creationTimestamp", "Age of the job", 0),
        ("Slices", "integer", ".spec.slices", "Slices asked for", 1),
        ("Steps", "integer", ".status.steps", "Steps of the whole run", 1),
        ("Loss", "number", ".status.progress.loss", "Loss of the step", 1),
        ("Saved", "integer", ".status.lastCheckpointStep", "Step of the last committed checkpoint", 1),
        ("Restarts", "integer", ".status.restarts.total", "Restarts so far", 1),
        ("Charged", "integer", ".status.restarts.charged", "Crashes since the last new checkpoint", 1),
        ("Free", "integer", ".status.restarts.free", "Restarts that do not count as crashes", 1),
        ("Queue", "string", ".spec.queue", "Kueue LocalQueue", 1),
        ("Managed by", "string", ".spec.managedBy", "Controller that runs it, if not this operator", 1),
        ("Message", "string", ".status.message", "The phase in plain words", 1),
    ]
    return [
        {"name": name, "type": kind, "jsonPath": path, "description": text, "priority": priority}
        for name, kind, path, text, priority in columns
    ]


def as_yaml() -> str:
    """The definition as YAML."""
    text: str = yaml.safe_dump(custom_resource_definition(), sort_keys=False, width=110, allow_unicode=True)
    return _HEADER + text


def main(arguments: list[str] | None = None) -> int:
    """Writes the file, or compares it with --check; returns 1 if it differs."""
    parser = argparse.ArgumentParser(prog="python -m tpujob_resource.crd", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args(arguments)
    if not options.check:
        options.file.parent.mkdir(parents=True, exist_ok=True)
        options.file.write_text(as_yaml(), encoding="utf-8")
        return 0
    if options.file.is_file() and options.file.read_text(encoding="utf-8") == as_yaml():
        return 0
    sys.stderr.write(f"{options.file} is not what the models say; run `make generate`\n")
    return 1
