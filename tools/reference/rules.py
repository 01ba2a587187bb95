"""The page of the rules between fields, from the tables that all validators evaluate."""

from collections.abc import Iterable

from tools.reference.text import HEADER, plain, table
from tpujob_contract.field_rules import Condition, Rule
from tpujob_resource.models.fields import Change, changes
from tpujob_resource.models.phases import EDITABLE_PHASES
from tpujob_resource.models.spec import Spec
from tpujob_resource.rules import computed
from tpujob_resource.rules.table import RULES, TWICE, UNIQUE
from tpujob_resource.rules.trainer_rules import block_rules

SHOWN = 4
"""How many values of a list the page names; a list of accelerators has dozens."""


def page() -> str:
    """Every rule between fields: the field at fault, when it is refused, and the sentence."""
    left = [(f"`{rule.field}`", rule.refuses, rule.reason) for rule in computed.RULES]
    return (
        f"{HEADER}# Rules between fields\n\n"
        "The API server refuses these jobs at admission; `tpujob check`, `render`, `run` and the operator refuse them "
        "with the same sentence. Of the `trainer` block, the trainer does, too. [Refused jobs](refusals.md) has an "
        "example of each.\n\n"
        f"## spec\n\n{_rows(RULES, '')}\n"
        f"No two items of {', '.join(f'`{at.removesuffix("[]")}`' for at in dict(UNIQUE))} have the same name, and no "
        f"two volumes the same `mountPath`: the second {TWICE}.\n\n"
        f"## trainer\n\n{_rows(block_rules(), 'spec.trainer.')}\n"
        "## What only the operator and the command line refuse\n\n"
        f"{table(('field', 'refused', 'why not the API server'), left)}"
    )


def changing() -> str:
    """The section about when fields can change, for the page of the fields."""
    words = {
        Change.NEVER: "not after the job is created",
        Change.RUNNING: "at any time",
        Change.RAISED: "at any time, and only to a larger number",
        Change.ELASTIC: "at any time, for independent workers that share their units and are in no queue",
    }
    rows = [(f"`spec.{field}`", words[change]) for field, change in changes(Spec).items() if change in words]
    phases = f"{', '.join(EDITABLE_PHASES[:-1])} or {EDITABLE_PHASES[-1]}"
    return (
        "## Fields that change while a job runs\n\n"
        f"All others change while the job is {phases}: set `suspend: true`, wait, and edit them.\n\n"
        f"{table(('field', 'changes'), rows)}"
    )


def _rows(rules: Iterable[Rule], prefix: str) -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for rule in rules:
        field = f"{prefix}{rule.at}.{rule.field}".strip(".").replace("..", ".").replace('"', "")
        when = " and ".join(_words(each) for each in rule.when)
        rows.setdefault((field, rule.message), []).append(when)
    return table(
        ("field", "refused if", "sentence"),
        [(f"`{field}`", "; or ".join(when), plain(message)) for (field, message), when in rows.items()],
    )


def _words(each: Condition) -> str:
    """A condition as text."""
    field = f"`{each.path.lstrip('/').replace(chr(34), '')}`" if each.path else "it"
    first = each.values[0] if each.values else ""
    match each.kind:
        case "given" | "there":
            return f"{field} is given"
        case "absent":
            return f"{field} is missing"
        case "one of":
            return f"{field} is {_list(each.values)}"
        case "none of":
            return f"{field} is not {_list(each.values)}"
        case "matches":
            return f"{field} matches `{first}`"
        case "differs":
            return f"{field} does not match `{first}`"
        case "longer":
            return f"{field} has more than {first} characters"
        case "at least":
            return f"{field} is at least {_other(first)}"
        case "less":
            return f"{field} is less than {_other(first)}"
        case "larger amount":
            return f"{field} is more than {_other(first)}"
        case "indivisible":
            return f"{_other(first)} does not divide {field}"
        case "several":
            return f"several of {', '.join(f'`{path}`' for path in each.values)} are given"
        case _:
            return {"none": f"{field} is on no volume", "lost": f"{field} is on a volume of the pod"}.get(
                first, f"{field} is on a volume that is readOnly"
            )


def _list(values: tuple[object, ...]) -> str:
    shown = ", ".join(f"`{value}`" for value in values[:SHOWN])
    return f"one of {shown}{', …' if len(values) > SHOWN else ''}" if len(values) > 1 else shown


def _other(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else str(value)
