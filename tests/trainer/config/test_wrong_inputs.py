"""The trainer refuses each wrong block that the other readers refuse; of a rule between fields, with its sentence."""

import pytest

from tests.wrong_inputs.table import WRONG
from tpujob_contract.field_rules import broken, broken_rules
from tpujob_resource.rules.table import RULES as OF_THE_SPEC
from tpujob_trainer.config.rules import RULES
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.values.errors import ConfigurationError

BLOCKS = {
    name: wrong.block
    for name, wrong in WRONG.items()
    # Volumes and accelerator are not in the block.
    if wrong.block is not None and next(broken(wrong.job, OF_THE_SPEC), None) is None
}


@pytest.mark.parametrize("name", BLOCKS)
def test_trainer_refuses_what_the_operator_refuses(name: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse_config(BLOCKS[name])
    sentences = [f"spec.trainer.{sentence}" for sentence in broken_rules(BLOCKS[name], RULES)]
    if name.startswith("rule "):
        assert WRONG[name].says[0] in sentences
        assert str(refusal.value) in sentences
    else:
        fields = {line.partition(": ")[0] for line in (*WRONG[name].says, *sentences)}
        assert str(refusal.value).partition(": ")[0] in fields
