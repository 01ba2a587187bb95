import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tpujob_resource.crd import build
from tpujob_resource.crd.structural_schema import structural
from tpujob_resource.models.fields import Change, changes, changing_in_place
from tpujob_resource.models.spec import Spec

ROOT = Path(__file__).parents[3]


def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = build.custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", inner
        yield from _fields(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield f"{path}[]", {**schema[key], "description": "of its list"}
            yield from _fields(schema[key], f"{path}[]")


def _spec_and_status() -> list[tuple[str, dict[str, Any]]]:
    properties = _schema()["properties"]
    return [*_fields(properties["spec"], "spec"), *_fields(properties["status"], "status")]


def test_the_committed_file_is_what_the_models_say() -> None:
    assert (ROOT / build.FILE).read_text(encoding="utf-8") == build.as_yaml(), "run `make generate`"


def test_check_compares_and_writing_satisfies_it(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "crd.yaml"
    assert build.main(["--check", str(file)]) == 1
    assert build.main([str(file)]) == 0
    assert build.main(["--check", str(file)]) == 0


@pytest.mark.parametrize(
    ("path", "schema"), _spec_and_status(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_field_is_described_and_capped(path: str, schema: dict[str, Any]) -> None:
    description = schema.get("description", "")
    assert description.endswith((".", "…")) or description == "of its list", path
    match schema.get("type"):
        case "string":
            assert {"maxLength", "enum", "format"} & set(schema), path
        case "array":
            assert "maxItems" in schema, path
        case "object" if "additionalProperties" in schema:
            assert "maxProperties" in schema, path
        case "integer" | "number" if path.startswith("spec."):
            assert {"minimum", "maximum"} <= set(schema), path


def test_nothing_is_left_that_structural_schemas_lack() -> None:
    def keys(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for name, inner in value.items():
                if name != "properties":
                    yield name
                yield from keys(list(inner.values()) if name == "properties" else inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    unwanted = {"$ref", "$defs", "anyOf", "oneOf", "title", "default", "const", "propertyNames", "patternProperties"}
    assert not unwanted & set(keys(_schema()["properties"]))


def test_every_other_field_is_frozen_while_a_job_runs() -> None:
    # One rule, for each that looks at status costs milliseconds of each write.
    (rule,) = (rule for rule in _schema()["x-kubernetes-validations"] if "oldSelf.status" in rule["rule"])
    compared = set(re.findall(r"self\.spec\.(\w+) == oldSelf\.spec\.\1\b", rule["rule"]))
    named = set(re.findall(r"'spec\.(\w+) '", rule["messageExpression"]))
    names = {field.alias or name for name, field in Spec.model_fields.items()}
    assert compared == named == names - changing_in_place(Spec, is_elastic=False) - {"managedBy"}


def test_fields_that_change_in_a_running_job_are_these() -> None:
    assert {name: change for name, change in changes(Spec).items() if change is not Change.STOPPED} == {
        "suspend": Change.RUNNING,
        "ttlSecondsAfterFinished": Change.RUNNING,
        "activeDeadlineSeconds": Change.RUNNING,
        "restarts": Change.RUNNING,
        "minSlices": Change.RUNNING,
        "shrinkAfterSeconds": Change.RUNNING,
        "growAfterSeconds": Change.RUNNING,
        "retry": Change.RAISED,
        "workers": Change.ELASTIC,
        "managedBy": Change.NEVER,
    }


def test_a_reference_beside_a_description_keeps_the_description() -> None:
    schema = {
        "$defs": {"Inner": {"type": "object", "title": "Inner", "description": "inner", "properties": {}}},
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}], "default": None, "description": "outer"},
            "b": {"const": 3, "type": "integer"},
        },
    }
    assert structural(schema)["properties"] == {
        "a": {"type": "object", "description": "outer", "properties": {}},
        "b": {"type": "integer", "format": "int64", "enum": [3]},
    }


def test_true_alternatives_are_an_error() -> None:
    with pytest.raises(ValueError, match="no structural schema has the alternatives integer, string"):
        structural({"anyOf": [{"type": "integer"}, {"type": "string"}]})
