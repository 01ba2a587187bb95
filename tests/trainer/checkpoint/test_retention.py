"""What stays, where `test_against_orbax.py` has no word of Orbax for it."""

import pytest

from tpujob_trainer.checkpoint.retention import Retention


@pytest.mark.parametrize(
    ("rule", "gone"),
    [
        pytest.param(Retention(last=1, best=1, best_metric="loss", best_is_highest=True), [10, 30, 40], id="highest"),
        pytest.param(Retention(last=1, best=2, best_metric="accuracy"), [10, 20, 30, 40], id="unmeasured"),
    ],
)
def test_what_no_rule_keeps_is_surplus(rule: Retention, gone: list[int]) -> None:
    steps = {10: {}, 20: {"loss": 3.0}, 30: {"loss": 2.0}, 40: {"loss": 2.5}, 50: {}}
    assert rule.surplus(steps) == gone
