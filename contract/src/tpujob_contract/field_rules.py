"""Rules between fields, as rows that every reader of a job evaluates.

A row has the field at fault, conditions that are refused in combination, and a message. The rows of `spec` are in
`tpujob_resource.rules.table`; those of the `trainer` block are declared by the trainer and published with its schema.
Python evaluates them here; `tpujob_resource.crd.rule_cel` translates the same rows to CEL for the API server.

Paths are keys separated by dots, relative to the place of a rule; a path that begins with `/` starts at the root of the
document instead.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Pattern, Tuple, Union

from tpujob_contract.quantity import quantity

TASK = "pretrain"
"""The task of a block without one."""
ON_VOLUME = "on volume"
"""The kind of conditions that apply only in pods."""

Path = Tuple[Union[int, str], ...]
MAPPING = (dict, Mapping)
"""`dict` comes first: with the abstract class alone, its check took a fifth of the time of a job's hundred rules."""


@dataclasses.dataclass(frozen=True)
class Condition:
    """A condition on a document. The functions below create them."""

    kind: str
    path: str = ""
    values: Tuple[Any, ...] = ()
    default: Any = None
    """The value that is used if the field is absent."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """A combination of fields that is refused."""

    field: str
    """The field at fault, relative to the place; empty for the place itself."""
    message: str
    """The text after the field: what is wrong, and what to do."""
    when: Tuple[Condition, ...]
    """The document is refused if all of these hold."""
    at: str = ""
    """The place of the rule: a path, with [] after a list for each of its items, {} after a map for each key."""
    shows: bool = False
    """Whether the message repeats the field's value."""

    def paths(self) -> Iterator[str]:
        """The paths of the fields that the rule reads."""
        for each in self.when:
            yield each.path
            if each.kind in ("at least", "less", "larger amount", "indivisible", "several"):
                yield from (value for value in each.values if isinstance(value, str))


@dataclasses.dataclass(frozen=True)
class Broken:
    """A rule that a document violates."""

    path: Path
    """The path of the field at fault."""
    value: Any
    """The value of that field; None: it is absent."""
    rule: Rule


def rule(field: str, message: str, *when: Tuple[Condition, ...], at: str = "", shows: bool = False) -> Rule:
    """A row that refuses a document if all conditions hold. The arguments are the fields of `Rule`."""
    return Rule(field, message, tuple(condition for part in when for condition in part), at, shows)


def given(*paths: str) -> Tuple[Condition, ...]:
    """Each of these fields is present, and neither null, false nor 0."""
    return tuple(Condition("given", path) for path in paths)


def there(path: str) -> Tuple[Condition, ...]:
    """The field is present and not null."""
    return (Condition("there", path),)


def absent(*paths: str) -> Tuple[Condition, ...]:
    """Each of these fields is absent, null, false or 0."""
    return tuple(Condition("absent", path) for path in paths)


def one_of(path: str, values: Iterable[Any], default: Any = None) -> Tuple[Condition, ...]:
    """The field has one of these values."""
    return (Condition("one of", path, tuple(values), default),)


def none_of(path: str, values: Iterable[Any], default: Any = None) -> Tuple[Condition, ...]:
    """The field has none of these values; does not hold if it is absent and has no default."""
    return (Condition("none of", path, tuple(values), default),)


def matches(path: str, pattern: str) -> Tuple[Condition, ...]:
    """The field is a string in which the pattern occurs."""
    return (Condition("matches", path, (pattern,)),)


def differs(path: str, pattern: str) -> Tuple[Condition, ...]:
    """The field is a string in which the pattern does not occur."""
    return (Condition("differs", path, (pattern,)),)


def longer(path: str, characters: int) -> Tuple[Condition, ...]:
    """The field is a string with more than this many characters."""
    return (Condition("longer", path, (characters,)),)


def at_least(
    path: str, other: Union[str, float], default: Any = None, other_default: Any = None
) -> Tuple[Condition, ...]:
    """The field is a number greater than or equal to `other`, a number or the path of a field."""
    return (Condition("at least", path, (other, other_default), default),)


def less(path: str, other: Union[str, float], default: Any = None) -> Tuple[Condition, ...]:
    """The field is a number less than `other`, a number or the path of a field."""
    return (Condition("less", path, (other, None), default),)


def larger_amount(path: str, other: str) -> Tuple[Condition, ...]:
    """The field is a Kubernetes quantity larger than that of another field."""
    return (Condition("larger amount", path, (other,)),)


def indivisible(path: str, by: Union[str, int]) -> Tuple[Condition, ...]:
    """The field is a number that is not a multiple of `by`, a number or the path of a field."""
    return (Condition("indivisible", path, (by,)),)


def several(*paths: str) -> Tuple[Condition, ...]:
    """More than one of these fields is given."""
    return (Condition("several", "", paths),)


def on_volume(path: str, kind: str) -> Tuple[Condition, ...]:
    """The field is an absolute path or a file:// address, on no volume of the job or on one of this kind.

    Args:
        path: The field.
        kind: `none` (on no volume), `lost` (with the pod) or `readOnly`.
    """
    return (Condition(ON_VOLUME, path, (kind,)),)


def of_tasks(*tasks: str) -> Tuple[Condition, ...]:
    """The task of the `trainer` block is one of these."""
    return one_of("/task", tasks, TASK)


def broken(document: Mapping[str, Any], rules: Iterable[Rule]) -> Iterator[Broken]:
    """The rules that a document violates, in their order."""
    scopes: Dict[str, List[Tuple[Path, Scope]]] = {}
    for rule in rules:
        if rule.at not in scopes:
            scopes[rule.at] = [(path, Scope(document, place)) for path, place in places(document, rule.at)]
        for path, scope in scopes[rule.at]:
            if not isinstance(scope.place, MAPPING) and any(each.path[:1] not in ("", "/") for each in rule.when):
                continue  # the schema refuses this type
            if _holds(scope, rule.when):
                yield Broken(path + keys(rule.field), value_at(scope.place, rule.field), rule)


def broken_rules(block: Mapping[str, Any], rules: Iterable[Rule]) -> Iterator[str]:
    """A message for each rule that a block violates; it starts with the path of the field in the block."""
    for each in broken(block, rules):
        value = f"{json.dumps(each.value)} " if each.rule.shows and each.value is not None else ""
        yield f"{path_text(each.path)}: {value}{each.rule.message}"


def path_text(path: Path) -> str:
    """`data.mixture[2].path` for ("data", "mixture", 2, "path")."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def places(document: Any, at: str) -> Iterator[Tuple[Path, Any]]:
    """Each place in a document that a path describes, with its value."""
    found = [((), document)]  # type: list[Tuple[Path, Any]]
    for part in at.split(".") if at else ():
        key, each = part.rstrip("[]{}"), part[-2:]
        inner = [((*path, key), value_at(value, key)) for path, value in found]
        if each == "[]":
            inner = [((*p, i), item) for p, items in inner if isinstance(items, list) for i, item in enumerate(items)]
        elif each == "{}":
            inner = [((*path, name), name) for path, names in inner if isinstance(names, Mapping) for name in names]
        found = inner
    return ((path, value) for path, value in found if value is not None)


class Scope(NamedTuple):
    """A place in a document, to which the paths of conditions are relative."""

    document: Any
    place: Any

    def get(self, path: str, default: Any = None) -> Any:
        """The value of a field; the default if it is absent or null."""
        value = value_at(self.document, path[1:]) if path.startswith("/") else value_at(self.place, path)
        return default if value is None else value


def value_at(value: Any, path: str) -> Any:
    """The value at a path inside a value; None: there is none."""
    for key in keys(path):
        if not isinstance(value, MAPPING):
            return None
        value = value.get(key)
    return value


@functools.cache  # paths in rules are constants
def keys(path: str) -> Tuple[str, ...]:
    """The keys of a path; a key that contains dots is in quotes."""
    return tuple(key.strip('"') for key in re.findall(r'"[^"]*"|[^.]+', path))


def is_given(value: Any) -> bool:
    """Whether a value is neither null, false nor 0."""
    return value is not None and not (isinstance(value, (bool, int, float)) and not value)


def _is_one_of(scope: Scope, row: Condition) -> bool:
    value = scope.get(row.path, row.default)
    return value is not None and any(type(value) is type(each) and value == each for each in row.values)


def _is_none_of(scope: Scope, row: Condition) -> bool:
    return scope.get(row.path, row.default) is not None and not _is_one_of(scope, row)


def _matches(scope: Scope, row: Condition) -> bool:
    value = scope.get(row.path)
    return isinstance(value, str) and _compiled(row.values[0]).search(value) is not None


def _differs(scope: Scope, row: Condition) -> bool:
    return isinstance(scope.get(row.path), str) and not _matches(scope, row)


@functools.cache
def _compiled(pattern: str) -> Pattern[str]:
    # As in the API server's RE2, $ matches only the very end, and \s and \w are ASCII.
    return re.compile(pattern.replace("$", r"\Z"), re.ASCII)


def _numbers(scope: Scope, row: Condition) -> Tuple[Any, Any]:
    other = row.values[0]
    if isinstance(other, str):
        other = scope.get(other, row.values[1] if len(row.values) > 1 else None)
    return scope.get(row.path, row.default), other


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_at_least(scope: Scope, row: Condition) -> bool:
    value, other = _numbers(scope, row)
    return _is_number(value) and _is_number(other) and value >= other


def _is_less(scope: Scope, row: Condition) -> bool:
    value, other = _numbers(scope, row)
    return _is_number(value) and _is_number(other) and value < other


def _is_indivisible(scope: Scope, row: Condition) -> bool:
    value, other = _numbers(scope, row)
    return _is_number(value) and _is_number(other) and other > 0 and value % other != 0


def _is_larger_amount(scope: Scope, row: Condition) -> bool:
    value, other = scope.get(row.path), scope.get(row.values[0])
    amounts = [quantity(each) if isinstance(each, (str, int)) else None for each in (value, other)]
    return amounts[0] is not None and amounts[1] is not None and amounts[0] > amounts[1]


FILE = "file://"
VOLUMES = "/spec.volumes"
LASTING = ("persistentVolumeClaim", "gcs")
"""Kinds of volumes that outlive a pod and that all hosts can share."""


def _is_on_volume(scope: Scope, row: Condition) -> bool:
    value = scope.get(row.path)
    if not isinstance(value, str) or not value.startswith(("/", FILE)):
        return False
    path = value[len(FILE) :] if value.startswith(FILE) else value
    around = [v for v in scope.get(VOLUMES, []) if (path + "/").startswith(v.get("mountPath", "").rstrip("/") + "/")]
    inner = max(around, key=lambda volume: len(volume["mountPath"]), default=None)
    if inner is None:
        return bool(row.values[0] == "none")
    is_lost = all(inner.get(kind) is None for kind in LASTING)
    return bool({"lost": is_lost, "readOnly": not is_lost and inner.get("readOnly", False)}.get(row.values[0], False))


_HOLDS: Dict[str, Callable[[Scope, Condition], bool]] = {
    "given": lambda scope, row: is_given(scope.get(row.path)),
    "there": lambda scope, row: scope.get(row.path) is not None,
    "absent": lambda scope, row: not is_given(scope.get(row.path)),
    "one of": _is_one_of,
    "none of": _is_none_of,
    "matches": _matches,
    "differs": _differs,
    "longer": lambda scope, row: isinstance(scope.get(row.path), str) and len(scope.get(row.path)) > row.values[0],
    "at least": _is_at_least,
    "less": _is_less,
    "larger amount": _is_larger_amount,
    "indivisible": _is_indivisible,
    "several": lambda scope, row: sum(is_given(scope.get(path)) for path in row.values) > 1,
    "on volume": _is_on_volume,
}


def _holds(scope: Scope, conditions: Iterable[Condition]) -> bool:
    """Whether all of these hold; a loop, because for most rules the first does not."""
    for each in conditions:  # noqa: SIM110 — a generator for each of a hundred rules costs more than the conditions
        if not _HOLDS[each.kind](scope, each):
            return False
    return True


def as_rows(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """The rules as JSON."""
    return [
        {
            **{key: value for key, value in vars(rule).items() if value and key != "when"},
            "when": [{k: list(v) if isinstance(v, tuple) else v for k, v in vars(c).items() if v} for c in rule.when],
        }
        for rule in rules
    ]


def from_rows(rows: Iterable[Mapping[str, Any]]) -> Tuple[Rule, ...]:
    """The rules in published rows."""
    return tuple(
        Rule(
            row.get("field", ""),
            row["message"],
            tuple(Condition(**{**each, "values": tuple(each.get("values", ()))}) for each in row["when"]),
            row.get("at", ""),
            row.get("shows", False),
        )
        for row in rows
    )
