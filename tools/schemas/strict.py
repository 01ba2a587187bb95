"""OpenAPI definitions as JSON Schemas that reject unknown fields. Pure."""

from typing import Any

type Schema = dict[str, Any]

FIELDS = "properties"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING: Schema = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
NUMBER_OR_STRING: Schema = {"oneOf": [{"type": "string"}, {"type": "number"}]}


def definitions_of(openapi: Schema) -> dict[str, Schema]:
    """All definitions of a Kubernetes version, by name."""
    found: dict[str, Schema] = {name: strict(schema) for name, schema in openapi["definitions"].items()}
    # The API server also accepts a number as a quantity; the definition says string.
    return found | {QUANTITY: NUMBER_OR_STRING}


def kinds_of(openapi: Schema) -> dict[tuple[str, str, str], str]:
    """The group, version and kind of each object → the name of its definition."""
    return {
        (each["group"], each["version"], each["kind"]): name
        for name, schema in openapi["definitions"].items()
        for each in schema.get("x-kubernetes-group-version-kind", ())
    }


def strict(schema: Any) -> Any:
    """A schema that, at every level, allows only the fields that it defines."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string") is True:
        return INT_OR_STRING
    made = {key: _strict_fields(value) if key == FIELDS else strict(value) for key, value in schema.items()}
    is_open = "additionalProperties" in made or made.get("x-kubernetes-preserve-unknown-fields") is True
    if FIELDS in made and not is_open:
        made["additionalProperties"] = False
    return made


def _strict_fields(fields: Schema) -> Schema:
    """The fields, each with a strict schema; they are no schema themselves: a field may be named `properties`."""
    return {name: strict(schema) for name, schema in fields.items()}


def of_custom_resource(definition: Schema) -> dict[tuple[str, str, str], Schema]:
    """The schemas of a CustomResourceDefinition, by group, version and kind."""
    spec = definition["spec"]
    found = {}
    for version in spec["versions"]:
        schema = strict(version["schema"]["openAPIV3Schema"])
        # Kubernetes itself checks the metadata of every object; definitions do not describe it.
        schema["properties"]["metadata"] = {"type": "object"}
        found[spec["group"], version["name"], spec["names"]["kind"]] = schema
    return found
