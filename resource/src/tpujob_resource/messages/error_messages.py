"""Error messages for validation errors of the models, with the path of the field as the user wrote it."""

import inspect
import json
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tpujob_contract.spelling import nearest_name, normalized, number_meant
from tpujob_contract.storage_address import redacted
from tpujob_resource.models import fields

NAME = "lower-case letters, digits and -, beginning and ending with a letter or digit"

WORDS: Mapping[str, str] = {
    fields.IMAGE_PATTERN: (
        "is not an image; write [HOST/]NAME[:TAG][@sha256:DIGEST], NAME in lower case and without https://, "
        "DIGEST of 64 digits"
    ),
    fields.CODE_ARCHIVE_PATTERN: "is neither gs://BUCKET/PATH nor an absolute path",
    fields.CODE_REPOSITORY_PATTERN: (
        "is neither https://HOST/PATH, without a user and a query, nor file:///PATH on one of the job's volumes"
    ),
    fields.PACKAGES_PATTERN: "is not a path such as requirements.txt; allowed: letters, digits, -, _, ., + and /",
    fields.MANAGER_PATTERN: (
        "is not the name of a controller; write DOMAIN/PATH, such as kueue.x-k8s.io/multikueue, DOMAIN in lower case"
    ),
    fields.QUANTITY_PATTERN: 'is not an amount such as 8, "500m" or "64Gi"',
    fields.NO_NUL_PATTERN: "has a NUL character; leave it out",
    r"^[0-9a-f]{64}$": "is not a SHA-256 digest; it has 64 hexadecimal digits in lower case",
    r"^[0-9a-f]{40}([0-9a-f]{24})?(\+changes)?$": "is not a commit; write its 40 hexadecimal digits, no branch or tag",
    r"^[A-Za-z_][A-Za-z0-9_.-]*$": "is not a variable's name; allowed: letters, digits, _, . and -, not a digit first",
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$": f"is not a name in Kubernetes; allowed: {NAME}, and dots within",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": f"is not a name in a pod; allowed: {NAME}",
    r"^[-._a-zA-Z0-9]+$": "is not a key of a Secret or ConfigMap; allowed: letters, digits, -, _ and .",
    r"^/[^:\x00]+$": "is not an absolute path without colons; write /NAME",
    r"^[a-z0-9][a-z0-9._-]*[a-z0-9]$": "is not a bucket's name; allowed: lower-case letters, digits, -, _ and .",
    r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$": (
        "is not a label's value; allowed: letters, digits, -, _ and ., beginning and ending with a letter or digit"
    ),
    r"^[a-z]([-a-z0-9]*[a-z0-9])?$": f"is not a name in Google Cloud; allowed: {NAME}, a letter first",
    r"^[a-z]([-a-z0-9:.]*[a-z0-9])?$": f"is not a project's id; allowed: {NAME}, a letter first",
    r"^[1-9][0-9]*(x[1-9][0-9]*){1,2}$": "is not a topology such as 16x16",
    r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$": (
        "is not a label's key; write [PREFIX/]NAME, NAME of letters, digits, -, _ and ., such as example.com/pool"
    ),
}


def pattern_message(pattern: str) -> str:
    """The end of an error message about a value that does not match a pattern."""
    return WORDS.get(pattern) or f"has characters that are not allowed here; pattern {pattern}"


MAX_SHOWN = 60
"""Most characters of a value in a message."""
AMOUNT = ("constrained-str", "constrained-int")
"""The parts that pydantic appends to the path of a quantity, which is a string or a number."""
SHELL_WORDS = ("command", "args")
"""Lists that users may write as one line by mistake."""


def describe_problems(error: ValidationError, model: type[BaseModel]) -> tuple[str, ...]:
    """One line for each error: field, value, what is allowed, what to do."""
    lines: dict[str, None] = {}
    for detail in error.errors(include_url=False):
        lines[_line(detail, model)] = None
    return tuple(lines)


def field_path(parts: tuple[int | str, ...]) -> str:
    """`spec.env[2].name` for ("spec", "env", 2, "name"); keys that are not words are quoted."""
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif _is_word(part):
            path += f".{part}" if path else part
        else:
            path += f"[{json.dumps(part)}]"
    return path


def _is_word(key: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_-]+", key) is not None


def quoted(value: Any) -> str:
    """A value for a message: shortened JSON without secrets of addresses, because conditions and logs repeat it."""
    text = redacted(json.dumps(value, default=str, ensure_ascii=False))
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def unknown_field(parent: str, key: str, known: list[str], below: Iterable[str] = ()) -> str:
    """The error message for an unknown key.

    Args:
        parent: The path of the mapping that has it.
        key: The unknown key.
        known: The keys that are allowed there.
        below: Keys of the mappings among them, as `block.key`; a single one with the same name is suggested.
    """
    word, colon, value = key.partition(":")
    deeper = [name for name in below if normalized(name.rpartition(".")[2]) == normalized(key)]
    near = deeper[0] if len(deeper) == 1 else nearest_name(key, known)
    if colon and word in known:
        advice = f"write {word}: {value}, with a space after the colon"
    else:
        advice = f"did you mean {near}?" if near else f"known: {', '.join(known)}"
    path = parent + field_path((key,)) if key and not _is_word(key) else f"{parent}.{key}" if parent else key
    return f"{path}: there is no such field; {advice}"


def _line(detail: ErrorDetails, model: type[BaseModel]) -> str:
    location = tuple(part for part in detail["loc"] if part != "[key]")
    if detail["type"] == "extra_forbidden":
        known = list(_known_keys(model, location[:-1]))
        # In a resource, users write only `spec`.
        below = [f"spec.{name}" for name in _known_keys(model, ("spec",))] if len(location) == 1 else []
        return unknown_field(field_path(location[:-1]), str(location[-1]), known, below)
    location = _without_union_members(location)
    path = field_path(location) or "the manifest"
    if detail["type"] == "missing":
        return f"{path}: is missing"
    context = detail.get("ctx", {})
    is_amount = detail["loc"][-1:] and detail["loc"][-1] in AMOUNT
    say = (lambda c: 'is not an amount such as 8, "500m" or "64Gi"') if is_amount else _SENTENCES.get(detail["type"])
    wanted = say(context) if say else detail["msg"][0].lower() + detail["msg"][1:]
    given = "the key" if detail["loc"][-1:] == ("[key]",) else quoted(detail["input"])
    is_number = detail["type"] in ("int_type", "float_type") and not is_amount
    meant = number_meant(detail["input"]) if is_number else ""
    if detail["type"] == "list_type" and location[-1] == "env" and isinstance(detail["input"], dict):
        meant = '; write [{name: NAME, value: "VALUE"}], an entry for each'
    if detail["type"] == "list_type" and location[-1] in SHELL_WORDS and isinstance(detail["input"], str):
        meant = f"; write [{', '.join(detail['input'].split())}]"
    if is_amount and isinstance(detail["input"], str) and _BYTES.fullmatch(detail["input"]):
        meant = f"; write {detail['input'].removesuffix('B').replace(' ', '')}i"
    if detail["type"] in _NO_MAPPING and location[-1:] == ("restarts",) and isinstance(detail["input"], int):
        meant = f"; write {{crashes: {detail['input']}}}"
    return f"{path}: {given} {wanted}{meant}"


_BYTES = re.compile(r"[0-9]+ ?[KMGT]B")
_NO_MAPPING = ("dict_type", "model_type", "model_attributes_type")
_SENTENCES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "string_type": lambda c: "is not a string; put it in quotes",
    "int_type": lambda c: "is not a whole number",
    "int_from_float": lambda c: "is not a whole number",
    "float_type": lambda c: "is not a number",
    "bool_type": lambda c: "is neither true nor false",
    "dict_type": lambda c: "is not a mapping",
    "model_type": lambda c: "is not a mapping",
    "model_attributes_type": lambda c: "is not a mapping",
    "list_type": lambda c: "is not a list",
    "greater_than_equal": lambda c: f"is too small; at least {c['ge']}",
    "less_than_equal": lambda c: f"is too large; at most {c['le']}",
    "string_too_long": lambda c: f"is too long; at most {c['max_length']} characters",
    "string_too_short": lambda c: "is empty",
    "too_long": lambda c: f"has {c['actual_length']} entries; at most {c['max_length']}",
    "too_short": lambda c: f"is empty; at least {c['min_length']} entry",
    "string_pattern_mismatch": lambda c: pattern_message(c["pattern"]),
    "literal_error": lambda c: f"is not allowed; one of {c['expected']}",
    "enum": lambda c: f"is not allowed; one of {c['expected']}",
}


def _without_union_members(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    # A quantity is a string or a number, and pydantic appends which one it tried.
    return location[:-1] if location and location[-1] in AMOUNT else location


def _known_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> Iterator[str]:
    """The keys that are allowed at this place of the resource."""
    for part in location:
        if isinstance(part, int):
            continue
        fields = {f.alias or name: f for name, f in model.model_fields.items()}
        if part not in fields:
            return
        inner = _model_within(fields[part].annotation)
        if inner is None:
            return
        model = inner
    for name, field in model.model_fields.items():
        yield field.alias or name


def _model_within(annotation: Any) -> type[BaseModel] | None:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    for argument in typing.get_args(annotation):
        found = _model_within(argument)
        if found is not None:
            return found
    return None
