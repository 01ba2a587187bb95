"""What is done here beside Orbax's CheckpointManager, compared with it."""

import dataclasses
import datetime
from pathlib import Path

import orbax.checkpoint as ocp
from hypothesis import given
from hypothesis import strategies as st
from orbax.checkpoint import checkpoint_managers as orbax

from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.retention import Retention

LOSS = "loss"


@dataclasses.dataclass
class Info:
    """`orbax.PolicyCheckpointInfo`."""

    step: int
    metrics: dict[str, float] | None
    time: datetime.datetime = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


def by_orbax(rule: Retention, steps: dict[int, dict[str, float]]) -> list[int]:
    policies: list[orbax.PreservationPolicy] = [orbax.LatestN(max(rule.last, 1))]
    if rule.every_steps:
        policies.append(orbax.EveryNSteps(rule.every_steps))
    if rule.best:
        policies.append(
            orbax.BestN(
                get_metric_fn=lambda metrics: metrics[LOSS],
                reverse=True,
                n=rule.best,
                keep_checkpoints_without_metrics=False,
            )
        )
    infos = [Info(step, metrics or None) for step, metrics in sorted(steps.items())]
    kept = orbax.AnyPreservationPolicy(policies).should_preserve(infos, context=orbax.PreservationContext())
    return [info.step for info, is_kept in zip(infos, kept, strict=True) if not is_kept]


@given(
    steps=st.dictionaries(
        st.integers(1, 60), st.one_of(st.just({}), st.builds(lambda n: {LOSS: float(n)}, st.integers(0, 4))), min_size=4
    ),
    last=st.integers(0, 4),
    every_steps=st.sampled_from([None, 1, 5, 12]),
    best=st.integers(0, 3),
)
def test_retention_is_that_of_orbax(
    steps: dict[int, dict[str, float]], last: int, every_steps: int | None, best: int
) -> None:
    rule = Retention(last=last, every_steps=every_steps, best=best, best_metric=LOSS)
    assert rule.surplus(steps) == by_orbax(rule, steps)


def test_orbax_keeps_few_checkpoints_that_were_never_measured() -> None:
    rule = Retention(last=1, best=2, best_metric=LOSS)
    assert rule.surplus({1: {}, 2: {}}) == [1]
    assert by_orbax(rule, {1: {}, 2: {}}) == []


def test_orbax_counts_a_folder_without_its_marker(tmp_path: Path) -> None:
    """On a file system it takes the name of a folder for a commit: a copy that was interrupted would be restored."""
    (tmp_path / layout.STEPS / "7" / layout.STATE).mkdir(parents=True)
    with ocp.CheckpointManager(tmp_path / layout.STEPS) as manager:
        assert manager.all_steps() == [7]
    assert layout.committed(tmp_path) == []
    assert layout.leftovers(tmp_path) == [7]
