"""Sets fields of a job from the command line: `--set spec.trainer.steps=100`."""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tpujob.job.yaml_text import NotYaml, read_value
from tpujob.output.errors import CommandError

OPTION = "--set"
ROOTS = ("spec", "metadata")
LONGEST_SHOWN = 200
"""The most characters of a value in a message."""
_STEP = re.compile(r"([^.\[\]=]+)|\[([0-9]{1,9})\]")
_PATH = re.compile(r"[^.\[\]=]+(\.[^.\[\]=]+|\[[0-9]{1,9}\])*")

type Step = str | int


def with_fields(document: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """A copy of a job with some fields set.

    Args:
        document: The resource.
        settings: Each as PATH=VALUE: fields separated by dots, list items as `[0]`; the value is YAML, but a number in
            a field of type string stays text. `null` removes the field.

    Raises:
        CommandError: A setting is malformed, or its path leads through a value without fields.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(document))
    for setting in settings:
        _set(changed, setting)
    return changed


def _set(document: dict[str, Any], setting: str) -> None:
    path, equals, text = setting.partition("=")
    if not equals or not _PATH.fullmatch(path):
        raise CommandError(f"{OPTION}: {setting!r} is not PATH=VALUE; write spec.trainer.steps=100, for instance")
    steps: list[Step] = [name or int(number) for name, number in _STEP.findall(path)]
    if steps[0] not in ROOTS:
        raise CommandError(f"{OPTION}: {path}: a job has spec and metadata; did you mean spec.{path}?")
    value = _value(path, text)
    parent, last = _parent(document, steps, creates=value is not None), steps[-1]
    if isinstance(last, int):
        _item(parent, last, steps[:-1])
        parent[last] = value
    elif value is not None:
        parent[last] = value
    elif parent is not None:
        parent.pop(last, None)


def _parent(document: dict[str, Any], steps: Sequence[Step], *, creates: bool) -> Any:
    """The value that has the last step as a field or an item; None: it is absent and not to be created."""
    node: Any = document
    for at, step in enumerate(steps[:-1]):
        if isinstance(step, int):
            node = _item(node, step, steps[:at])
        else:
            _require_fields(node, steps[:at])
            if node.get(step) is None:
                if not creates:
                    return None
                node[step] = {}
            node = node[step]
    if not isinstance(steps[-1], int):
        _require_fields(node, steps[:-1])
    return node


def _require_fields(node: Any, steps: Sequence[Step]) -> None:
    if not isinstance(node, Mapping):
        advice = f"name one of its items, as in {_spelled(steps)}[0]" if isinstance(node, list) else "set it as a whole"
        raise CommandError(f"{OPTION}: {_spelled(steps)} is {_words(node)}, which has no fields; {advice}")


def _item(node: Any, number: int, steps: Sequence[Step]) -> Any:
    if not isinstance(node, list) or number >= len(node):
        has = f"has {len(node)} items, from [0] on" if isinstance(node, list) else f"is {_words(node)}, and no list"
        raise CommandError(f"{OPTION}: {_spelled([*steps, number])}: {_spelled(steps)} {has}")
    return node[number]


def _value(path: str, text: str) -> Any:
    """The value that the YAML text means; in a field of type string, a number or the like stays text."""
    try:
        found = read_value(text)
    except NotYaml as error:
        if _holds_text(path):
            return text
        shown = repr(text[:LONGEST_SHOWN])
        raise CommandError(
            f"{OPTION}: {path}: {shown} is not YAML; put text with a colon or bracket in quotes ({error})"
        ) from error
    return text if found is not None and not isinstance(found, str) and _holds_text(path) else found


def _holds_text(path: str) -> bool:
    """Whether the type of the field is string."""
    from tpujob_resource.crd.build import custom_resource_definition

    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name, number in _STEP.findall(path):
        schema = schema.get("items", {}) if number else schema.get("properties", {}).get(name, {})
    return bool(schema.get("type") == "string")


def _spelled(steps: Sequence[Step]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _words(value: Any) -> str:
    return "absent" if value is None else json.dumps(value, default=str)
