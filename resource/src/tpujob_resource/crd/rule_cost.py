"""Reduces the cost of rules for the API server, which evaluates each rule at each write of a job or of its status.

To read one field, it copies the schemas of all fields beside it, once if the field is absent, more often if it is
present. So a rule should read few fields, at a place that has few.
"""

import re
from dataclasses import replace

from tpujob_contract.field_rules import Condition, Rule, keys

USUAL = (
    "accelerator",
    "checkpointDir",
    "trainer",
    "model",
    "model.preset",
    "data",
    "data.path",
    "data.tokenizer",
    "preset",
    "path",
    "tokenizer",
)
"""Paths in rows of fields that most jobs have: a condition that they are present is seldom false."""


def in_order(row: Rule) -> list[Condition]:
    """The conditions of a row, those first that are false for most jobs, so that the others are not evaluated."""
    return sorted(row.when, key=_rank)


def is_rare(each: Condition) -> bool:
    """Whether a condition is about a field that few jobs have, and is false without it."""
    return each.kind not in ("absent", "several") and each.default is None and each.path not in USUAL


def _rank(each: Condition) -> tuple[int, int]:
    """Sort key: how seldom a condition is false, and the depth of its path."""
    if each.kind == "several" or each.default is not None:
        return 2, 0
    depth, is_usual = len(keys(each.path)), each.path in USUAL
    return (0, depth) if is_usual == (each.kind == "absent") else (1, depth)


def nearest(row: Rule) -> Rule:
    """The row, moved to the innermost place with all its fields, if it does not apply where that place is absent."""
    while (head := _head(row)) is not None:
        cut = len(head) + 1
        row = replace(
            row,
            at=f"{row.at}.{head}" if row.at else head,
            field=row.field[cut:],
            when=tuple(_without(each, cut) for each in row.when),
        )
    return row


def _head(row: Rule) -> str | None:
    """The key under which all fields of a row are; None: there is none, or the row cannot be moved there."""
    heads = {keys(path)[0] for path in (row.field, *row.paths()) if path}
    if len(heads) != 1 or row.at[-2:] in ("[]", "{}") or any(each.kind == "on volume" for each in row.when):
        return None
    (head,) = heads
    # The path of a quoted key begins with a bracket, and would be shown with a dot before it.
    is_below = all(re.match(rf"{head}\.[^\"]", path) for path in (row.field, *row.paths()))
    needs_it = any(each.kind not in ("absent", "several") and each.default is None for each in row.when)
    return head if is_below and needs_it and head != "metadata" else None


def _without(each: Condition, cut: int) -> Condition:
    others = each.values
    if each.kind in ("at least", "less", "larger amount", "indivisible"):
        others = tuple(value[cut:] if isinstance(value, str) else value for value in each.values)
    return replace(each, path=each.path[cut:], values=others)
