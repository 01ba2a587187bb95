import pytest

from tpujob_trainer.checkpoint.retention import Retention


@pytest.mark.parametrize(
    ("rule", "gone"),
    [
        pytest.param(Retention(last=2), [10, 20, 30], id="newest"),
        pytest.param(Retention(last=100), [], id="more than there are"),
        pytest.param(Retention(last=0), [10, 20, 30, 40], id="at least one"),
        pytest.param(Retention(last=1, every_steps=20), [10, 30], id="multiples"),
        pytest.param(Retention(last=1, best=1, best_metric="loss"), [10, 20, 40], id="best"),
        pytest.param(Retention(last=1, best=2, best_metric="loss"), [10, 20], id="two best"),
        pytest.param(Retention(last=1, best=1, best_metric="loss", best_is_highest=True), [10, 30, 40], id="highest"),
        pytest.param(Retention(last=1, best=2, best_metric="accuracy"), [10, 20, 30, 40], id="unmeasured"),
        pytest.param(Retention(last=1, every_steps=10, best=1, best_metric="loss"), [], id="all"),
    ],
)
def test_what_no_rule_keeps_is_surplus(rule: Retention, gone: list[int]) -> None:
    steps = {10: {}, 20: {"loss": 3.0}, 30: {"loss": 2.0}, 40: {"loss": 2.5}, 50: {}}
    assert rule.surplus(steps) == gone


def test_metric_alone_keeps_nothing() -> None:
    assert Retention(last=1, best_metric="loss").surplus({1: {"loss": 1.0}, 2: {"loss": 2.0}}) == [1]


def test_of_equally_good_ones_the_newer_stays() -> None:
    rule = Retention(last=1, best=1, best_metric="loss")
    assert rule.surplus({1: {"loss": 2.0}, 2: {"loss": 2.0}, 3: {}}) == [1]
