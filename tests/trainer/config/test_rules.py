"""Each rule between fields is refused by trainer and operator in the same sentence."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.operator.manifests import manifest
from tpujob_contract.block_rules import BlockRule
from tpujob_resource.errors import InvalidJob
from tpujob_resource.rules.load import load_job
from tpujob_resource.rules.trainer_schema import block_rules
from tpujob_trainer.config.rules import RULES
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.errors import ConfigurationError

BLOCKS: dict[str, dict[str, Any]] = {
    "evaluation": {"everySteps": 5},
    "sample": {"prompt": "a", "everySteps": 5},
    "extract": {"layers": ["1"]},
    "profile": {"memoryEverySteps": 5},
}
"""What a block holds at least; the others may be empty."""
VALUES: dict[str, Any] = {
    "tokens": 5,
    "steps": 5,
    "zLoss": 1e-4,
    "loss": "mine:loss",
    "export.average": True,
    "evaluation.average": True,
    "optimizer.emaDecay": 0.99,
    "model.from": "gs://bucket/weights",
    "model.custom": "mine:Model",
}


def example(rule: BlockRule) -> dict[str, Any]:
    """A block that breaks this rule."""
    task = rule.tasks[0] if rule.tasks else "pretrain"
    block: dict[str, Any] = {"task": task, "model": {"preset": "tiny"}, "data": {"path": "gs://bucket/data"}}
    if task == "pretrain" and "steps" not in rule.absent:
        block["steps"] = 5
    if task == "extract" and "extract" not in rule.absent:
        block["extract"] = BLOCKS["extract"]
    for path in rule.given:
        outer, _, key = path.rpartition(".")
        if path.startswith("model."):
            block["model"] = {}  # instead of the preset
        inner = block.setdefault(outer, copy.deepcopy(BLOCKS.get(outer, {}))) if outer else block
        inner[key] = VALUES[path] if path in VALUES else inner.get(key, copy.deepcopy(BLOCKS.get(key, {})))
    return block


def test_operator_has_the_rules_of_the_trainer() -> None:
    assert block_rules() == RULES


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.field}: {rule.message[:30]} {','.join(rule.tasks)}")
def test_trainer_and_operator_refuse_alike(rule: BlockRule) -> None:
    sentence = f"spec.trainer.{rule.field}: {rule.message}"
    with pytest.raises(ConfigurationError) as by_trainer:
        parse_config(example(rule))
    assert str(by_trainer.value) == sentence
    with pytest.raises(InvalidJob) as by_operator:
        load_job(manifest(accelerator="cpu:1x1", trainer=example(rule)))
    assert sentence in by_operator.value.problems
