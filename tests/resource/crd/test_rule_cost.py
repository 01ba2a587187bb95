"""Rows look first at what most jobs lack, and stand where few fields are: each write of a job evaluates them all."""

import pytest

from tpujob_contract.field_rules import (
    Rule,
    absent,
    given,
    indivisible,
    matches,
    of_tasks,
    on_volume,
    one_of,
    rule,
    several,
)
from tpujob_resource.crd.rule_cost import in_order, nearest
from tpujob_resource.rules.table import RULES

ORDERS = {
    "what is rare is asked first": (rule("", "", absent("queue"), given("slices")), ["slices", "queue"]),
    "of the rare, what lies less deep": (
        rule("", "", given("trainer.lora"), given("slices")),
        ["slices", "trainer.lora"],
    ),
    "what most have is asked last": (
        rule("", "", matches("accelerator", "^cpu"), given("args")),
        ["args", "accelerator"],
    ),
    "what most have is seldom absent": (rule("", "", given("trainer"), absent("image")), ["trainer", "image"]),
    "a default decides nothing": (rule("", "", of_tasks("probe"), given("trainer")), ["trainer", "/task"]),
}


@pytest.mark.parametrize("name", ORDERS)
def test_conditions_are_ordered_by_what_they_save(name: str) -> None:
    row, paths = ORDERS[name]
    assert [each.path for each in in_order(row)] == paths


def test_order_keeps_all_conditions() -> None:
    for row in RULES:
        assert sorted(in_order(row), key=repr) == sorted(row.when, key=repr)


def test_row_moves_to_the_place_of_all_its_fields() -> None:
    row = nearest(
        rule("model.heads", "m", given("model.heads"), indivisible("model.heads", "model.kvHeads"), at="spec.trainer")
    )
    moved = rule("heads", "m", given("heads"), indivisible("heads", "kvHeads"), at="spec.trainer.model")
    assert row == moved


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(rule("model.heads", "", absent("model.heads"), at="spec.trainer"), id="absence"),
        pytest.param(
            rule("model.heads", "", given("model.heads"), given("steps"), at="spec.trainer"), id="fields elsewhere"
        ),
        pytest.param(rule("steps", "", given("model.heads"), at="spec.trainer"), id="another field at fault"),
        pytest.param(rule("model", "", given("model"), at="spec.trainer"), id="the place itself"),
        pytest.param(
            rule("model.heads", "", given("model.heads"), of_tasks("probe"), at="spec.trainer"), id="from the root"
        ),
        pytest.param(rule("code.archive", "", on_volume("code.archive", "none"), at="spec"), id="volumes"),
        pytest.param(rule("placement.a", "", several("placement.a", "placement.b"), at="spec"), id="counts"),
        pytest.param(rule("metadata.name", "", matches("metadata.name", "x")), id="metadata"),
        pytest.param(
            rule('nodeSelector."a.b/c"', "", matches('nodeSelector."a.b/c"', "x"), at="spec"), id="keys in quotes"
        ),
        pytest.param(rule("a.b", "", one_of("a.b", ["x"], "x"), at="spec.volumes[]"), id="items"),
    ],
)
def test_row_stays_where_it_would_mean_something_else(row: Rule) -> None:
    assert nearest(row) == row
