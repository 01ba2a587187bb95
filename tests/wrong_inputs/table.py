"""Every wrong job: who refuses it, and what they say. Four runners ask the readers.

| reader | runner |
|---|---|
| the API server, by the schema and CEL | tests/scenes/control_plane/test_admission.py |
| the operator | tests/resource/api/test_refusals.py |
| `tpujob render`, `tpujob check` | tests/cli/test_wrong_inputs.py |
| the trainer | tests/trainer/config/test_wrong_inputs.py |

docs/reference/refusals.md is made of the rows (`make generate`).
"""

from tests.operator.manifests import manifest
from tests.wrong_inputs import machines, names, pods, slices, storage, trainer
from tests.wrong_inputs.examples import block_example
from tests.wrong_inputs.row import BUDGET, Wrong
from tpujob_contract.values.field_rules import broken_rules
from tpujob_resource.crd.build import is_too_costly
from tpujob_resource.rules.trainer_schema import block_rules

WRITTEN: dict[str, Wrong] = {**names.ROWS, **slices.ROWS, **machines.ROWS, **pods.ROWS, **storage.ROWS, **trainer.ROWS}
"""Written by hand; they name everything that is wrong with the job."""


def _of_block_rules() -> dict[str, Wrong]:
    """An example of each rule that the trainer publishes."""
    found: dict[str, Wrong] = {}
    for rule in block_rules():
        block = block_example(rule)
        (sentence,) = broken_rules(block, [rule])
        name = f"rule {len(found)}: {rule.at} {rule.field}"
        later = BUDGET if is_too_costly(rule) else None
        found[name] = Wrong(manifest(accelerator="cpu:1x1", trainer=block), f"spec.trainer.{sentence}", later=later)
    return found


WRONG = {**WRITTEN, **_of_block_rules()}
