"""Each rule between fields is refused by trainer and operator in the same sentence."""

import pytest

from tests.operator.manifests import manifest
from tests.wrong_inputs.examples import block_example
from tpujob_contract.field_rules import Rule
from tpujob_resource.rules.load import load_job
from tpujob_resource.rules.trainer_rules import block_rules
from tpujob_resource.topology.errors import InvalidJob
from tpujob_trainer.config.rules import RULES
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.values.errors import ConfigurationError


def test_operator_has_the_rules_of_the_trainer() -> None:
    assert block_rules() == RULES


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.at} {rule.field}: {rule.message[:30]}")
def test_trainer_and_operator_refuse_alike(rule: Rule) -> None:
    block = block_example(rule)
    with pytest.raises(ConfigurationError) as by_trainer:
        parse_config(block)
    assert str(by_trainer.value).endswith(rule.message)
    with pytest.raises(InvalidJob) as by_operator:
        load_job(manifest(accelerator="cpu:1x1", trainer=block))
    assert str(by_trainer.value) in by_operator.value.problems
