import json
from pathlib import Path
from typing import Any

import pytest

from tpujob_trainer.config.schema import NonFiniteConfig
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.tasks.rollback_log import FILE, Rollbacks
from tpujob_trainer.train.nonfinite import (
    NonFiniteError,
    SkipBatches,
    SkipBudget,
    batch_of_step,
    batches_to_leave_out,
    go_back_below,
    spelled,
)

CONFIG = NonFiniteConfig(max_skips=2, window_steps=5)


@pytest.mark.parametrize(
    ("steps", "fails_at"),
    [
        ([3, 4], None),
        ([3, 4, 5], 5),
        ([3, 4, 7], 7),
        ([3, 4, 8], None),
        ([3, 8, 9, 14, 15], None),
        ([3, 8, 9, 10], 10),
    ],
    ids=["as many as allowed", "one more", "just within the window", "just outside", "spread", "late"],
)
def test_so_many_within_the_window_are_allowed(steps, fails_at):
    budget = SkipBudget(CONFIG)
    for step in steps:
        if step == fails_at:
            with pytest.raises(NonFiniteError) as error:
                budget.skipped(step, weights_are_finite=True)
            assert len(error.value.steps) == 3
            assert error.value.exit_code == 76
            return
        budget.skipped(step, weights_are_finite=True)
    assert fails_at is None


def test_weights_that_are_not_finite_end_it_at_once():
    with pytest.raises(NonFiniteError, match=r"^step 3: the loss is not finite, and neither are the weights") as error:
        SkipBudget(CONFIG).skipped(3, weights_are_finite=False)
    assert error.value.steps == (3,)
    assert error.value.is_shared


def test_no_skip_allowed_means_the_first_is_one_too_many():
    with pytest.raises(NonFiniteError, match=r"^step 7: .* 0 in 1000 \(spec\.trainer\.nonFinite\) are allowed"):
        SkipBudget(NonFiniteConfig(max_skips=0)).skipped(7, weights_are_finite=True)


@pytest.mark.parametrize(
    ("step", "first", "taken", "left_out", "batch"),
    [
        (1, 0, 0, (), 1),
        (12, 10, 10, (), 12),
        (12, 10, 14, (), 16),
        (12, 10, 10, (11,), 13),
        (12, 10, 10, (11, 12), 14),
        (12, 10, 10, (12,), 13),
        (12, 10, 10, (9, 13), 12),
    ],
)
def test_batches_are_counted_with_those_left_out(step, first, taken, left_out, batch):
    assert batch_of_step(step, first=first, taken=taken, left_out=left_out) == batch
    # The reader that leaves them out counts alike.
    numbers: Any = iter(range(taken + 1, taken + 20))
    seen: list[Any] = list(SkipBatches(numbers, taken=taken, left_out=left_out))
    assert seen[step - first - 1] == batch


@pytest.mark.parametrize(
    ("steps", "first", "expected"),
    [((7,), 0, [6, 7]), ((7, 9), 0, [6, 7, 9]), ((1,), 0, [1]), ((11,), 10, [11]), ((12,), 10, [11, 12])],
)
def test_their_batches_and_the_one_before_are_left_out(steps, first, expected):
    assert batches_to_leave_out(steps, first=first, taken=first, left_out=()) == expected


def test_a_checkpoint_without_a_finite_loss_after_it_is_not_gone_back_to():
    # Step 6's loss was finite: so were the weights after step 5, and nothing is known of those after step 6.
    assert go_back_below((7, 8)) == 6


@pytest.mark.parametrize(("steps", "words"), [((7,), "step 7"), ((7, 8, 11), "steps 7 to 11")])
def test_range_is_spelled(steps, words):
    assert spelled(steps) == words


def test_the_next_attempt_knows_what_was_left_out(tmp_path: Path):
    rollbacks = Rollbacks(str(tmp_path), kv_store.alone())
    assert rollbacks.left_out == frozenset()
    rollbacks.remember(NonFiniteError("steps 7 to 8: bad", (7, 8)), [6, 7, 8], allowed=1, attempt="1.0-ab")
    later = Rollbacks(str(tmp_path), kv_store.alone())
    assert (later.count, later.left_out) == (1, frozenset({6, 7, 8}))
    assert json.loads((tmp_path / FILE).read_text())["rollbacks"][0]["steps"] == [7, 8]
    with pytest.raises(NonFiniteError, match=r"^steps 9 to 10: bad; .* 1 times already, 1\.0-ab at steps 7 to 8"):
        later.remember(NonFiniteError("steps 9 to 10: bad", (9, 10)), [9, 10], allowed=1, attempt="1.1-cd")


def test_without_a_directory_there_is_no_way_back():
    rollbacks = Rollbacks(None, kv_store.alone())
    with pytest.raises(NonFiniteError, match=r"without spec\.checkpointDir there is nothing to go back to"):
        rollbacks.remember(NonFiniteError("step 7: bad", (7,)), [7], allowed=1, attempt="1.0-ab")
