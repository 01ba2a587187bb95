"""values.yaml is the manual: complete, explained, checked; a typo or a hostile value goes nowhere."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from tests.charts.rendered import CHART, NAMESPACE, RefusedValues, of_kind, pod_template, render, run_helm
from tools import chart_readme

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TEXT = (CHART / "values.yaml").read_text()
VALUES = YAML(typ="safe", pure=True).load(TEXT)


def blocks(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all mappings with known keys."""
    if "properties" in schema:
        yield path
        for key, below in schema["properties"].items():
            yield from blocks(below, (*path, key))


def with_key(path: tuple[str, ...], key: str, value: Any) -> dict[str, Any]:
    nested: Any = {key: value}
    for name in reversed(path):
        nested = {name: nested}
    return nested


def test_defaults_match_the_schema():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)


@pytest.mark.parametrize("path", list(blocks(SCHEMA)), ids=".".join)
def test_schema_and_defaults_name_the_same_keys(path):
    schema, values = SCHEMA, VALUES
    for key in path:
        schema, values = schema["properties"][key], values[key]
    optional = {"global", "fullnameOverride"} | ({"enabled"} if not path else set())
    assert schema["properties"].keys() - optional == values.keys() - optional


@pytest.mark.parametrize("path", list(blocks(SCHEMA)), ids=".".join)
def test_schema_refuses_an_unknown_key(path):
    with pytest.raises(jsonschema.ValidationError, match=r"'enabeld' was unexpected"):
        jsonschema.validate(with_key(path, "enabeld", True), SCHEMA)


def test_helm_refuses_an_unknown_key_by_name():
    with pytest.raises(RefusedValues, match="enabeld"):
        render({"crds": {"enabeld": True}})


@pytest.mark.parametrize(("is_enabled", "expected"), [(True, 1), (False, 0)])
def test_the_condition_of_a_dependency_switches_the_chart(is_enabled, expected, tmp_path):
    """A chart with this one as a dependency: Helm passes the condition's key down as a value."""
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / CHART.name).symlink_to(CHART)
    condition = {"name": CHART.name, "version": ">=0.0.0-0", "condition": f"{CHART.name}.enabled"}
    chart = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [condition]}
    (tmp_path / "Chart.yaml").write_text(json.dumps(chart))
    values = {CHART.name: {"enabled": is_enabled, "image": {"preloaded": True}}}
    rendered = run_helm("template", "a", tmp_path, "--kube-version=1.35.0", "--values=-", stdin=json.dumps(values))
    assert len(re.findall("^kind: Deployment$", rendered, re.MULTILINE)) == expected


@pytest.mark.parametrize(
    "values",
    [
        {"image": {"pullPolicy": "Sometimes"}},
        {"image": {"digest": "sha256:123"}},
        {"image": {"tag": "a b"}},
        {"watchNamespaces": "a"},
        {"watchNamespaces": ["a", "a"]},
        {"watchNamespaces": ["A"]},
        {"jobs": {"runAsUser": 0}},
        {"reportIntervalSeconds": 0},
        {"resyncSeconds": "often"},
        {"logLevel": "LOUD"},
        {"crds": {"enabled": "false"}},
        {"serviceAccount": {"name": "not_a_name"}},
        {"podLabels": {"a": "not a label"}},
        {"commonLabels": {"not a key": "a"}},
        {"fullnameOverride": "x" * 64},
        {"metrics": {"podMonitor": {"interval": "30"}}},
    ],
    ids=str,
)
def test_helm_refuses_values_that_cannot_work(values):
    with pytest.raises(RefusedValues, match="values don't meet the specifications of the schema"):
        render(values)


def test_every_key_is_explained():
    """A comment stands above each key, or above its block where the keys speak for themselves."""
    lines = TEXT.splitlines()
    unexplained = []
    for number, line in enumerate(lines):
        key = re.match(r"( *)([A-Za-z]+):", line)
        if key is None or len(key[1]) > 2:
            continue
        above = number - 1
        while above >= 0 and re.match(rf"{key[1]}[A-Za-z]", lines[above]):
            above -= 1  # explained together with its neighbours
        if not lines[above].lstrip().startswith("#") and not (key[1] and re.match(r"[A-Za-z]+:", lines[above])):
            block = any(re.match(rf"{key[1]}  #", following) for following in lines[number + 1 : number + 2])
            if not block:
                unexplained.append(line)
    assert unexplained == []


HOSTILE = [
    'a"b',
    "a'b",
    "a: b",
    "- a",
    "a\nkind: Secret",
    'a"\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: injected}\n#',
    "{{ .Release.Name }}",
    "${HOME} $(HOME)",
    "# a",
    "&a *a !!python/object",
    "yes",
    "1e3",
    "null",
    "\u2028\u0000\\x00",
]


def test_free_text_arrives_as_it_is():
    """Every hostile text at once in each value that takes any text."""
    texts = {f"k{number}": text for number, text in enumerate(HOSTILE)}
    values = {
        "podAnnotations": texts,
        "serviceAccount": {"annotations": texts},
        "tolerations": [texts],
        "affinity": texts,
        "imagePullSecrets": [{"name": text} for text in HOSTILE],
        "resources": {"limits": texts, "requests": texts},
    }
    assert len(render(values)) == len(render())
    pod = pod_template(values)
    assert pod["metadata"]["annotations"] == texts
    assert pod["spec"]["tolerations"] == [texts]
    assert pod["spec"]["affinity"] == texts
    assert pod["spec"]["imagePullSecrets"] == [{"name": text} for text in HOSTILE]
    for amounts in pod["spec"]["containers"][0]["resources"].values():
        assert texts.items() <= amounts.items()
    [account] = of_kind("ServiceAccount", values)
    assert account["metadata"]["annotations"] == texts


def text_values(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Paths of all values that are text, and of lists of text, with True for a list."""
    for key, below in schema.get("properties", {}).items():
        if below.get("type") == "string":
            yield (*path, key), False
        elif below.get("type") == "array" and below["items"]["type"] == "string":
            yield (*path, key), True
        else:
            yield from text_values(below, (*path, key))


@pytest.mark.parametrize(("path", "is_list"), list(text_values(SCHEMA)), ids=str)
def test_names_are_no_way_in(path, is_list):
    """Whatever is not free text has a pattern that a text with a line break, a quote or a brace does not match."""
    for text in HOSTILE[:7]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(with_key(path[:-1], path[-1], [text] if is_list else text), SCHEMA)


@pytest.mark.parametrize("text", ["true", "null", "123", "0x1f", "1e3", "on"])
def test_names_that_look_like_other_types_stay_text(text):
    values = {
        "image": {"tag": text},
        "watchNamespaces": [text],
        "monitoringNamespace": text,
        "serviceAccount": {"name": text},
        "priorityClassName": text,
        "podLabels": {"a": text},
        "fullnameOverride": text,
    }
    pod = pod_template(values)
    assert pod["spec"]["serviceAccountName"] == text
    assert pod["spec"]["priorityClassName"] == text
    assert pod["metadata"]["labels"]["a"] == text
    variables = {v["name"]: v.get("value") for v in pod["spec"]["containers"][0]["env"]}
    assert variables["OPERATOR_WATCH_NAMESPACES"] == variables["OPERATOR_MONITORING_NAMESPACE"] == text
    assert {role["metadata"]["namespace"] for role in of_kind("Role", values)} == {text, NAMESPACE}


def leaves(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Paths of all values that are no blocks of known keys."""
    known = set(blocks(SCHEMA))
    for key, value in values.items():
        below = (*path, key)
        yield from leaves(value, below) if below in known else [".".join(below)]


def test_readme_explains_every_value():
    text = chart_readme.PAGE.read_text()
    assert text == chart_readme.page(), "make generate"
    rows = re.findall(r"^\| `([\w.]+)` \| `.*` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(leaves(VALUES))
