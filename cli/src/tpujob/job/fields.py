"""Every field of a job with its type and its meaning, from the schema in the CRD."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tpujob.output.errors import CommandError
from tpujob_contract.spelling import nearest_name
from tpujob_resource.crd.build import custom_resource_definition

ROOTS = ("spec", "status")
TRAINER = "spec.trainer"


@dataclass(frozen=True)
class Field:
    """One field of a TpuTrainingJob."""

    path: str
    """As in `spec.volumes[].name`."""
    kind: str
    """Its type and allowed values, in a few words."""
    meaning: str
    """Its description, with defaults; empty if there is none."""
    is_required: bool = False

    def as_json(self) -> dict[str, Any]:
        """Its values by name."""
        return asdict(self)


def job_fields() -> list[Field]:
    """All fields of a job, in the order in which they are declared."""
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return [field for root in ROOTS for field in schema_fields(schema[root], root)]


def find(fields: Sequence[Field], path: str) -> list[Field]:
    """The field of a path, or those whose paths end with it; `spec.` and `spec.trainer.` may be left out.

    Raises:
        CommandError: there is none.
    """
    known = {field.path.replace("[]", ""): field for field in fields}
    wanted = path.replace("[]", "").strip(".")
    for candidate in (wanted, f"spec.{wanted}", f"{TRAINER}.{wanted}"):
        if candidate in known:
            return [known[candidate]]
    found = [field for name, field in known.items() if name.endswith(f".{wanted}")]
    if found:
        return found
    last = wanted.rpartition(".")[2]
    near = nearest_name(last, sorted({name.rpartition(".")[2] for name in known}))
    advice = f"did you mean {near}?" if near else "`tpujob explain` lists those of spec"
    raise CommandError(f"{path}: is no field of a job; {advice}")


def below(fields: Sequence[Field], field: Field) -> list[Field]:
    """The fields one level below a field."""
    begin = f"{field.path}[]." if any(each.path.startswith(f"{field.path}[].") for each in fields) else f"{field.path}."
    return [each for each in fields if each.path.startswith(begin) and "." not in each.path[len(begin) :]]


def kind(schema: Mapping[str, Any]) -> str:
    """The type and allowed values of a field, in a few words."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"] if value is not None)
    if schema.get("x-kubernetes-int-or-string"):
        return "amount"
    word = {"array": "list", "object": "mapping", "integer": "whole number"}.get(
        schema.get("type", ""), schema.get("type", "any")
    )
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{word}, {number(low)} to {number(high)}"
    if low is not None:
        return f"{word}, {number(low)} or more"
    if schema.get("maxLength") and word == "string":
        return f"string, at most {schema['maxLength']} characters"
    return str(word)


def number(value: float) -> str:
    """A number as text, without `.0`."""
    return str(int(value)) if float(value).is_integer() else json.dumps(value)


def schema_fields(schema: Mapping[str, Any], path: str) -> Iterator[Field]:
    """Every field below a schema, whose own path is `path`, in the order in which they are declared."""
    for key, inner in (schema.get("properties") or {}).items():
        name = f"{path}.{key}"
        yield Field(name, kind(inner), inner.get("description") or "", key in (schema.get("required") or ()))
        item = inner.get("items")
        if isinstance(item, Mapping):
            yield from schema_fields(item, f"{name}[]")
        yield from schema_fields(inner, name)
