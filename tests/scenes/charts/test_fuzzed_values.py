"""Whatever somebody writes into values.yaml, Helm renders valid objects of ours, or refuses it in plain words."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tests.charts.rendered import RefusedValues, render, render_text
from tests.scenes.charts.test_values import SCHEMA

KINDS = {each["kind"] for each in render({"metrics": {"podMonitor": {"enabled": True}}})} | {
    "ConfigMap",
    "PrometheusRule",
    "ResourceQuota",
    "Role",
    "RoleBinding",
    "ServiceMonitor",
}
OURS = re.compile(r"^(tpujob-operator|tputrainingjobs|[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$)")
PANIC = re.compile(
    r"nil pointer|can't evaluate|runtime error|panic|YAML parse error|error converting|wrong type for value"
)
"""What Helm says where a template, and not the value, is at fault."""
REFUSALS = re.compile(
    r"values don't meet the specifications|is not set|needs|is not installed|failed parsing --set|nothing below it"
)
"""The last is of the option with which these tests are run, where `image` is no mapping."""

HOSTILE = (
    "{{ .Release.Name }}",
    "a: b",
    "a\nkind: Secret",
    "---\nkind: Secret\n---",
    "*a",
    "&a",
    "!!object",
    "yes",
    "1e3",
)
# JSON writes characters beyond as two, which YAML does not read.
texts = st.text(
    st.characters(codec="utf-8", max_codepoint=0xFFFF, exclude_characters="\x00"), max_size=20
) | st.sampled_from(HOSTILE)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=5
)


def fitting(schema: Any) -> st.SearchStrategy[Any]:
    """Values that a part of the schema allows."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema["minimum"], schema["maximum"])
        case "number":
            return st.floats(schema["exclusiveMinimum"], schema["maximum"], exclude_min=True)
        case "string":
            return (
                st.from_regex(schema["pattern"].replace("$", r"\Z"), fullmatch=True) if "pattern" in schema else texts
            )
        case "array":
            return st.lists(fitting(schema["items"]), max_size=3, unique_by=repr)
        case _ if "properties" in schema:
            return blocks(schema)
    keys = schema.get("propertyNames", {"type": "string"})
    values = schema.get("additionalProperties")
    named = fitting({"type": "string", **keys})
    return st.dictionaries(named, fitting(values) if isinstance(values, dict) else anything, max_size=3)


def matching(pattern: str) -> st.SearchStrategy[str]:
    """Texts that Go's regular expressions, whose `$` is the end of the text, find fitting."""
    return st.from_regex(pattern.replace("$", r"\Z"), fullmatch=True)


def blocks(schema: Any, *, spoiled: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Some keys of a block, all of them fitting, or any of them something else."""
    optional = {
        key: (fitting(below) | anything) if spoiled else fitting(below)
        for key, below in schema["properties"].items()
        if key != "global"
    }
    required = {key: optional.pop(key) for key in schema.get("required", ())}
    return st.fixed_dictionaries(required, optional=optional)


# Each example runs Helm: no shrinking, and the same ones every time.
BOUNDED = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


@BOUNDED
@given(blocks(SCHEMA))
def test_values_that_fit_the_schema_render(values: dict[str, Any]) -> None:
    check(values)


@BOUNDED
@given(blocks(SCHEMA, spoiled=True))
def test_values_that_do_not_fit_are_refused_by_name(values: dict[str, Any]) -> None:
    check(values)


def keys(schema: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, below in schema["properties"].items():
        yield (*above, key)
        if "properties" in below:
            yield from keys(below, (*above, key))


@pytest.mark.parametrize("path", [*keys(SCHEMA)], ids=".".join)
def test_key_with_nothing_below_it_renders_or_is_named(path: tuple[str, ...]) -> None:
    """As in a file of values that ends with `jobSet:`: Helm takes the default away."""
    values: Any = None
    for key in reversed(path):
        values = {key: values}
    try:
        render_text(values)
    except RefusedValues as refusal:
        said = str(refusal)
        is_named = f"{'.'.join(path)}: there is nothing below it" in said or f"at '/{path[-1]}': got null" in said
        assert is_named or "failed parsing --set" in said, said


def check(values: dict[str, Any]) -> None:
    try:
        # The definition is long and takes none of them.
        text = render_text({**values, "crds": {"enabled": False}})
    except RefusedValues as refusal:
        said = str(refusal)
        is_clear = REFUSALS.search(said) is not None and PANIC.search(said) is None
        assert is_clear, said
        return
    for each in YAML(typ="safe").load_all(text):
        assert each["kind"] in KINDS
        assert each["apiVersion"]
        assert OURS.match(each["metadata"]["name"])
