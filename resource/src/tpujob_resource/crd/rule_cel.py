"""Translates the rules between fields to CEL: each row at its place in the schema, with the row's own message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tpujob_contract.field_rules import FILE, LASTING, Condition, Rule, keys
from tpujob_resource.crd.cel import rule, text, texts
from tpujob_resource.crd.rule_cost import in_order, is_rare, nearest

type Schema = dict[str, Any]

VALIDATIONS = "x-kubernetes-validations"


def attach(schema: Schema, rows: Iterable[Rule]) -> None:
    """Writes the rows into a structural schema.

    Args:
        schema: The schema of the document to which the rows' places and absolute paths refer.
        rows: Rows that the API server can evaluate.
    """
    alike: dict[object, list[_Made]] = {}
    for number, row in enumerate(map(nearest, rows)):
        made = _cel(schema, row)
        key = (id(made.node), made.wrap, made.field, made.message, made.guard) if made.guard else number
        alike.setdefault(key, []).append(made)
    for each in alike.values():
        each[0].node.setdefault(VALIDATIONS, []).append(_rule(each))


def attach_unique(schema: Schema, at: str, field: str, message: str) -> None:
    """Adds to a schema that no two items of a list have the same value in a field.

    `name` becomes the key of its list, by which the API server merges lists.
    """
    items, path = _node(schema, at.removesuffix("[]").split(".")), keys(field)
    if field == "name":
        items |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [field]}
    else:
        condition = f"self.all(a, self.exists_one(b, a.{'.'.join(path)} == b.{'.'.join(path)}))"
        items.setdefault(VALIDATIONS, []).append(rule(condition, f"{field} {message}"))


@dataclass(frozen=True)
class Value:
    """A CEL expression and the schema of its value."""

    expression: str
    schema: Mapping[str, Any]
    guards: tuple[str, ...] = ()
    """Conditions that must hold before the expression may be evaluated."""

    def at(self, path: str) -> Value:
        """The expression for a field of it, which may be absent."""
        if path == "metadata.name":
            return Value("self.metadata.name", {"type": "string"})  # no schema has it, but it is always present
        value = self
        for key in keys(path):
            if "properties" in value.schema:
                inner = f"{value.expression}.{_escaped(key)}"
                value = Value(inner, value.schema["properties"][key], (*value.guards, f"has({inner})"))
            else:
                inner = f"{value.expression}[{text(key)}]"
                there = f"{text(key)} in {value.expression}"
                value = Value(inner, value.schema["additionalProperties"], (*value.guards, there))
        return value

    def when(self, condition: str) -> str:
        """The condition, guarded so that it is false if the value is absent."""
        return " && ".join([*self.guards, condition] if condition else self.guards)

    def otherwise(self, default: Any) -> str:
        """The expression, with a default if the value is absent."""
        shown = text(default) if isinstance(default, str) else str(default)
        return self.expression if not self.guards else f"({' && '.join(self.guards)} ? {self.expression} : {shown})"


@dataclass(frozen=True)
class _Place:
    """The place of a row, to which the paths of its conditions are relative."""

    here: Value
    root: Value
    above: tuple[str, ...]
    """Keys from the root of the document to `root`."""

    def at(self, path: str) -> Value:
        if not path.startswith("/"):
            return self.here.at(path)
        found = keys(path[1:])
        return self.root.at(".".join(found[len(self.above) :]))


@dataclass(frozen=True)
class _Made:
    """A row in CEL."""

    node: Schema
    """The schema of its place."""
    wrap: str
    """A format string around its condition."""
    condition: str
    """True for refused values."""
    guard: str
    """A condition that a field is present that most jobs do not have; empty if the row needs no such field."""
    field: str | None
    message: str


def _rule(rows: list[_Made]) -> dict[str, Any]:
    """One rule for rows with the same field and message, so that their common guard is evaluated once."""
    first = rows[0]
    several = " || ".join(f"({row.condition})" for row in rows)
    condition = first.condition if len(rows) == 1 else f"{first.guard} && ({several})"
    return rule(first.wrap.format(condition), first.message, field=first.field)


def _cel(schema: Schema, row: Rule) -> _Made:
    """A row in CEL."""
    parts = row.at.split(".") if row.at else []
    absolute = [keys(each.path[1:])[:-1] for each in row.when if each.path.startswith("/")]
    if any(each.kind == "on volume" for each in row.when):
        absolute.append(("spec",))
    shared = [part for part, *others in zip(parts, *absolute, strict=False) if all(part == other for other in others)]
    above, below = (shared, parts[len(shared) :]) if absolute else (parts, [])
    each_key = bool(above) and above[-1].endswith("{}")
    node = _node(schema, [part.removesuffix("{}") for part in above])
    root = Value("self", node)
    if each_key:
        here, wrap = Value("key", {"type": "string"}), "self.all(key, !({}))"
    elif below:
        items = root.at(below[0].removesuffix("[]"))
        here = Value("x", items.schema["items"])
        wrap = f"!({items.when('')}) || {items.expression}.all(x, !({{}}))"
    else:
        here, wrap = root, "!({})"
    place = _Place(here, root, tuple(above))
    conditions = in_order(row)
    condition = " && ".join(f"({_CEL[each.kind](place, each)})" for each in conditions)
    field, message = _field(row, above, below, each_key=each_key)
    guard = place.at(conditions[0].path).when("") if is_rare(conditions[0]) else ""
    return _Made(node, wrap, condition, guard, field, message)


def _field(row: Rule, above: list[str], below: list[str], *, each_key: bool) -> tuple[str | None, str]:
    """The path that the API server names, relative to the row's place, and the message."""
    if not above and row.field.startswith("metadata."):
        return None, f"{row.field}: {row.message}"  # the path of a rule cannot lead into metadata
    if each_key:
        return None, f"has a key that {row.message}"
    path = [*(part.removesuffix("[]") for part in below[:1]), *(() if below else keys(row.field))]
    names = "".join(f"[{text(key)}]" if not key.isidentifier() else f".{key}" for key in path)
    return names or None, row.message


def _node(schema: Schema, parts: Iterable[str]) -> Schema:
    node = schema
    for part in parts:
        node = node["properties"][part.removesuffix("[]")]
        if part.endswith("[]"):
            node = node["items"]
    return node


_RESERVED = ("loop", "if", "in", "as", "for", "import", "package", "namespace")


def _escaped(key: str) -> str:
    """The name of a key in CEL, with reserved words and characters escaped (kubernetes.io, "Validation expression")."""
    return f"__{key}__" if key in _RESERVED else key.replace("-", "__dash__").replace(".", "__dot__")


def _given(value: Value) -> str:
    kind = value.schema.get("type")
    asks = value.expression if kind == "boolean" else f"double({value.expression}) != 0.0" if _is_number(value) else ""
    return value.when(asks)


def _is_number(value: Value) -> bool:
    return value.schema.get("type") in ("integer", "number")


def _one_of(place: _Place, each: Condition) -> str:
    value = place.at(each.path)
    values = texts(each.values) if isinstance(each.values[0], str) else json.dumps(list(each.values))
    if each.default is not None:
        return f"{value.otherwise(each.default)} in {values}"
    return value.when(f"{value.expression} in {values}")


def _none_of(place: _Place, each: Condition) -> str:
    value = place.at(each.path)
    there = value.when("") if each.default is None else ""
    return f"{there} && !({_one_of(place, each)})" if there else f"!({_one_of(place, each)})"


def _compared(operator: str) -> Callable[[_Place, Condition], str]:
    def compare(place: _Place, each: Condition) -> str:
        value, (other, *default) = place.at(each.path), each.values
        guards = value.guards if each.default is None else ()
        left = value.expression if each.default is None else value.otherwise(each.default)
        right, kinds = str(other), {str(value.schema.get("type"))}
        if isinstance(other, str):
            second = place.at(other)
            guards = (*guards, *(second.guards if default in ([], [None]) else ()))
            right = second.expression if default in ([], [None]) else second.otherwise(default[0])
            kinds.add(str(second.schema.get("type")))
        if "number" in kinds:
            left, right = f"double({left})", f"double({right})"
        return " && ".join([*guards, f"{left} {operator} {right}"])

    return compare


def _indivisible(place: _Place, each: Condition) -> str:
    value, (by,) = place.at(each.path), each.values
    if isinstance(by, int):
        return value.when(f"{value.expression} % {by} != 0")
    other = place.at(by)
    return " && ".join(
        [*value.guards, *other.guards, f"{other.expression} > 0 && {value.expression} % {other.expression} != 0"]
    )


def _larger_amount(place: _Place, each: Condition) -> str:
    value, other = place.at(each.path), place.at(each.values[0])
    first, second = (f"quantity(string({v.expression}))" for v in (value, other))
    return " && ".join([*value.guards, *other.guards, f"{first}.compareTo({second}) > 0"])


def _several(place: _Place, each: Condition) -> str:
    return f"{' + '.join(f'({_given(place.at(path))} ? 1 : 0)' for path in each.values)} > 1"


def _on_volume(place: _Place, each: Condition) -> str:
    value = place.at(each.path)
    path = f"({value.expression}.startsWith('{FILE}') ? {value.expression}.substring({len(FILE)}) : {value.expression})"
    is_local = value.when(f"({value.expression}.startsWith('/') || {value.expression}.startsWith('{FILE}'))")
    around = f"({path} + '/').startsWith(v.mountPath.endsWith('/') ? v.mountPath : v.mountPath + '/')"
    volumes = f"{place.root.expression}.volumes"

    def some(condition: str) -> str:
        return f"(has({volumes}) && {volumes}.exists(v, {around}{condition}))"

    is_lasting = f"({' || '.join(f'has(v.{kind})' for kind in LASTING)})"
    if each.values[0] == "none":
        return f"{is_local} && !{some('')}"
    # If one volume is mounted inside another, only the operator checks the inner one.
    fault = {"lost": f"!{is_lasting}", "readOnly": f"({is_lasting} && has(v.readOnly) && v.readOnly)"}[each.values[0]]
    return f"{is_local} && {some(f' && {fault}')} && !{some(f' && !{fault}')}"


_CEL: Mapping[str, Callable[[_Place, Condition], str]] = {
    "given": lambda place, each: _given(place.at(each.path)),
    "there": lambda place, each: place.at(each.path).when(""),
    "absent": lambda place, each: f"!({_given(place.at(each.path))})",
    "one of": _one_of,
    "none of": _none_of,
    "matches": lambda place, each: _matches(place.at(each.path), each),
    "differs": lambda place, each: _matches(place.at(each.path), each, "!"),
    "longer": lambda place, each: place.at(each.path).when(
        f"size({place.at(each.path).expression}) > {each.values[0]}"
    ),
    "at least": _compared(">="),
    "less": _compared("<"),
    "larger amount": _larger_amount,
    "indivisible": _indivisible,
    "several": _several,
    "on volume": _on_volume,
}


def _matches(value: Value, each: Condition, negation: str = "") -> str:
    return value.when(f"{negation}{value.expression}.matches({text(each.values[0])})")
