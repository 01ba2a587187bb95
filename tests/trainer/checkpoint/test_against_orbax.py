"""What is done here beside Orbax's CheckpointManager, compared with it."""

import dataclasses
import datetime

from hypothesis import given
from hypothesis import strategies as st
from orbax.checkpoint import checkpoint_managers as orbax

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
