"""What the operator says of wrong jobs. docs/reference/refusals.md lists it; UPDATE_GOLDEN=1 rewrites the page."""

import os
import re
from pathlib import Path

import pytest

from tests.operator.manifests import manifest
from tests.wrong_inputs.row import Wrong
from tests.wrong_inputs.table import WRITTEN, WRONG
from tpujob_contract.field_rules import Rule, broken
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.rules.load import load_job
from tpujob_resource.rules.table import RULES
from tpujob_resource.rules.trainer_rules import block_rules
from tpujob_resource.topology.errors import InvalidJob

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "refusals.md"
LONGEST = 240
HEAD = """# Refused jobs

Every row is a job that is refused, and what `tpujob check`, `tpujob render`, `tpujob run` and the condition `Valid`
say of it. `kubectl apply` refuses those of the first table, too: with the same sentence where fields contradict each
other, in the API server's own words where a field does not exist or has a wrong type. [Rules between
fields](rules.md) lists the rules. `make generate` writes this page.
"""


def _refused(wrong: Wrong) -> tuple[str, ...]:
    with pytest.raises(InvalidJob) as refusal:
        load_job(wrong.job)
    return refusal.value.problems


@pytest.mark.parametrize("name", WRONG)
def test_operator_refuses_with_these_sentences(name: str) -> None:
    problems = _refused(WRONG[name])
    for words in WRONG[name].says:
        assert any(line.startswith(words) for line in problems), problems
    if name in WRITTEN:
        assert len(problems) == len(WRONG[name].says)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.at} {rule.field}: {rule.message[:40]}")
def test_every_rule_has_an_example(rule: Rule) -> None:
    assert any(next(broken(wrong.job, [rule]), None) for wrong in WRITTEN.values())


@pytest.mark.parametrize("name", WRITTEN)
def test_only_what_takes_arithmetic_is_left_to_the_operator(name: str) -> None:
    wrong = WRITTEN[name]
    spec, block = wrong.job.get("spec") or {}, (wrong.job.get("spec") or {}).get("trainer")
    rules = list(broken({"metadata": {"name": ""}, **wrong.job}, RULES)) if isinstance(spec, dict) else []
    rules += list(broken(block, block_rules())) if isinstance(block, dict) else []
    assert not (rules and wrong.later)


def _table(title: str, names: list[str]) -> list[str]:
    rows = [f"| {name} | {'<br>'.join(map(_cell, _refused(WRITTEN[name])))} |" for name in names]
    return [f"## {title}", "", "| case | message |", "|---|---|", *rows, ""]


def _cell(text: str) -> str:
    # Without the list of all fields, which grows.
    plain = text.partition("; known: ")[0].replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")
    shown = plain if len(plain) <= LONGEST else plain[: LONGEST - 1] + "…"
    # A pattern is no link and no emphasis.
    return re.sub(r"([\[\]*_])", r"\\\1", shown)


def test_golden_list_of_refusals() -> None:
    tables = [
        *_table("At admission", [name for name, wrong in WRITTEN.items() if wrong.later is None]),
        *_table(
            "By the operator, as soon as it sees the job", [name for name, wrong in WRITTEN.items() if wrong.later]
        ),
    ]
    page = HEAD + "\n" + "\n".join(tables)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page


def test_there_are_enough_to_mean_something() -> None:
    assert len(WRITTEN) >= 200
    assert isinstance(load_job(manifest()), TpuTrainingJob)
