"""The loop with its real parts: step, checkpoints, report; only the batches are made up here."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

from tests.trainer.train.test_step import LENGTH, ROWS, SHAPE
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.retention import Listener, Retention, Settings
from tpujob_trainer.config.schema import CheckpointConfig, NonFiniteConfig
from tpujob_trainer.data import STATE_COLUMNS, LocalBatch
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.telemetry.metrics import Metrics
from tpujob_trainer.telemetry.report import Report
from tpujob_trainer.train.batches import Assembler, Feed
from tpujob_trainer.train.loop import ExitResult, Hook, Loop, checkpoint_tree
from tpujob_trainer.train.nonfinite import NonFiniteError, SkipBatches, SkipBudget
from tpujob_trainer.train.save_policy import SavePolicy, StepFlags
from tpujob_trainer.train.step import TrainState, TrainStep, init_state, make_finite_check, make_train_step
from tpujob_trainer.train.step_logger import Progress
from tpujob_trainer.values.errors import NotFoundError

pytestmark = pytest.mark.usefixtures("compiled_once")

OPTIMIZER = optax.adam(1e-2)
LANES = ROWS // 2
POISON = 999
"""A token that no vocabulary has: what should be predicted there has no number, and the loss is not finite."""


@functools.cache
def model() -> Model:
    return Model(
        dataclasses.replace(SHAPE, layers=1, tie_embeddings=False), build_mesh(slices=1, devices=jax.devices()[:2])
    )


@functools.cache
def train_step() -> TrainStep:
    return make_train_step(model(), OPTIMIZER, optax.constant_schedule(1e-2), clip_norm=1.0)


@functools.cache
def finite_check() -> Any:
    return make_finite_check(model())


def position_after(batches: int) -> np.ndarray:
    return np.full((LANES, len(STATE_COLUMNS)), batches, np.int32)


class Batches:
    """The k-th batch is a function of k; its state is k + 1."""

    def __init__(
        self,
        taken: int = 0,
        before: Callable[[int], None] = lambda taken: None,
        poisoned: Collection[int] = (),
        count: int = 1_000,
    ) -> None:
        self._count = count
        self.taken = taken
        self._before = before
        self._poisoned = poisoned

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> LocalBatch:
        self._before(self.taken)
        rng = np.random.default_rng(self.taken)
        tokens = rng.integers(0, 32, (ROWS, LENGTH + 1), np.int32)
        if self.taken in self._poisoned:
            tokens[3, 2] = POISON
        self.taken += 1
        return LocalBatch(
            inputs=tokens[:, :-1],
            targets=tokens[:, 1:],
            segment_ids=np.ones((ROWS, LENGTH), np.int32),
            positions=np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1)),
            loss_mask=np.full((ROWS, LENGTH), self.taken <= self._count),
            rows=np.arange(ROWS, dtype=np.int32),
            state=position_after(self.taken),
            lanes=np.arange(LANES, dtype=np.int32),
            batches_left=min(2, max(0, self._count - self.taken)),
        )


def new_runtime() -> Runtime:
    """One of its own for each run: what was said under a name is kept."""
    return Runtime(0, 1, "1.0-0000", "here", kv_store.alone())


class Unhurried(Checkpoints):
    """Waits for the save before, where a run would pass a save over: steps of this size are faster than a disk."""

    def save(self, step: int, tree: Any, **_: Any) -> bool:
        return super().save(step, tree)


@dataclasses.dataclass
class Run:
    """One attempt, put together as the task does it."""

    directory: Path
    every_steps: int | None = None
    every_seconds: int = 900
    stop: StopRequest = dataclasses.field(default_factory=lambda: StopRequest(grace_seconds=60))
    report: Report = dataclasses.field(default_factory=Report)
    save_seconds: float = 0.0
    clock: Callable[[], float] | None = None
    hooks: Sequence[Hook] = ()
    max_skips: int = 2

    def __post_init__(self) -> None:
        self.saver: Checkpoints = Unhurried(str(self.directory), Settings(retention=Retention(last=10)), new_runtime())
        self.losses: dict[int, float] = {}
        self.skipped: list[int] = []

    def train(self, steps: int, batches: Batches, state: TrainState | None = None, first: int = 0) -> ExitResult:
        assembler = Assembler(model().mesh, ROWS, LANES)
        config = CheckpointConfig(every_steps=self.every_steps, every_seconds=self.every_seconds)
        clock = {} if self.clock is None else {"clock": self.clock}
        policy = SavePolicy(config, self.stop, decides=True, measured_seconds=lambda: self.save_seconds, **clock)
        self.policy = policy
        progress = Progress(self.report, Metrics(self.report), steps=steps, log_every_steps=100, is_lead=True)
        record = progress.record

        def recorded(result: Any, **rest: Any) -> None:
            self.losses[result.step] = result.loss
            self.skipped += [] if result.is_finite else [result.step]
            record(result, **rest)

        progress.record = recorded  # type: ignore[method-assign]
        loop = Loop(
            train_step=train_step(),
            feed=Feed(batches, assembler, position_after(batches.taken)),
            weights_are_finite=finite_check(),
            skips=SkipBudget(NonFiniteConfig(max_skips=self.max_skips)),
            saver=self.saver,
            policy=policy,
            progress=progress,
            hooks=self.hooks,
        )
        return loop.run(state or init_state(model(), OPTIMIZER, 0), first=first, steps=steps)

    def restore(self) -> tuple[int, TrainState, np.ndarray]:
        abstract = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding),
            checkpoint_tree(
                init_state(model(), OPTIMIZER, 0),
                Assembler(model().mesh, ROWS, LANES).position(position_after(0)).of_lanes,
            ),
        )
        found = self.saver.restore(abstract)
        assert found is not None
        step, tree = found
        return step, TrainState(tree["step"], tree["weights"], tree["optimizer"]), np.asarray(tree["data"])

    def saved(self) -> list[int]:
        return sorted(int(folder.name) for folder in (self.directory / "steps").iterdir() if folder.name.isdigit())


def test_it_saves_at_its_steps_and_at_the_end(tmp_path: Path) -> None:
    run = Run(tmp_path, every_steps=2)
    ending = run.train(5, Batches())
    assert (ending.step, ending.has_finished) == (5, True)
    assert run.saved() == [2, 4, 5]
    assert run.saver.committed_step == 5
    assert sorted(run.losses) == [1, 2, 3, 4, 5]


def test_a_restored_run_goes_on_as_if_undisturbed(tmp_path: Path) -> None:
    whole = Run(tmp_path / "whole")
    whole.train(6, Batches())
    begun = Run(tmp_path / "parts")
    begun.train(3, Batches())
    resumed = Run(tmp_path / "parts")
    step, state, position = resumed.restore()
    assert step == int(state.step) == 3
    np.testing.assert_array_equal(position, 3)
    resumed.train(6, Batches(taken=int(position[0, 0])), state, first=step)
    assert begun.losses | resumed.losses == whole.losses


def test_a_request_stops_it_at_a_saved_step(tmp_path: Path) -> None:
    run = Run(tmp_path)
    ending = run.train(50, Batches(before=lambda taken: run.stop.request() if taken == 3 else None))
    assert (ending.step, ending.has_finished) == (5, False), "told in batch 4, read after step 5 was begun"
    assert run.saved() == [5]
    assert sorted(run.losses) == [1, 2, 3, 4, 5], "the last step is recorded before its state is saved"
    step, _, position = run.restore()
    assert step == 5
    np.testing.assert_array_equal(position, 5)


def test_a_save_that_does_not_fit_is_not_started(tmp_path: Path) -> None:
    run = Run(tmp_path, save_seconds=40)
    ending = run.train(50, Batches(before=lambda taken: run.stop.request() if taken == 3 else None))
    assert not ending.has_finished
    assert run.saver.committed_step is None


def test_process_0_can_ask_for_a_save_by_its_clock(tmp_path: Path) -> None:
    now = [0.0]

    def tick(taken: int) -> None:
        now[0] += 10

    run = Run(tmp_path, every_seconds=35, clock=lambda: now[0])
    run.train(9, Batches(before=tick))
    assert run.saved() == [5, 9], "asked with batch 4, told with its metrics after step 5 was begun"


def test_save_that_was_passed_over_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, may_end, is_committed = [0.0], threading.Event(), layout.is_committed
    monkeypatch.setattr(layout, "is_committed", lambda *of: may_end.wait() and is_committed(*of))

    def tick(taken: int) -> None:
        now[0] += 6
        if taken == 8:
            may_end.set()
            assert run.saver.finish(60)

    run = Run(tmp_path, every_steps=4, clock=lambda: now[0])
    listener = Listener(passed_over=lambda step, why: run.policy.try_again(in_seconds=10))
    run.saver = Checkpoints(str(tmp_path), Settings(retention=Retention(last=10)), new_runtime(), listener=listener)
    run.train(12, Batches(before=tick))
    assert run.saved() == [4, 11, 12], (
        "8 came while 4 was being saved; asked with batch 10, read after step 11 was begun"
    )


def test_a_poisoned_batch_changes_nothing_and_counts(tmp_path: Path) -> None:
    run = Run(tmp_path, every_steps=3)
    ending = run.train(5, Batches(poisoned=[2]))
    assert (ending.step, ending.has_finished) == (5, True)
    assert run.skipped == [3]
    assert run.saved() == [3, 5]
    without = Run(tmp_path / "without")
    without.saver = None  # type: ignore[assignment]
    skipping = Batches()
    batches = SkipBatches(skipping, taken=0, left_out=[3])
    without.train(4, batches)  # type: ignore[arg-type]
    # The batch is as good as not there; but for Adam's count of steps, which goes on.
    assert without.losses[3] == run.losses[4]


def test_too_many_poisoned_batches_are_reported_with_their_range(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(NonFiniteError, match=r"^steps 2 to 6: .* in 3 steps; 2 in 1000") as error:
        run.train(9, Batches(poisoned=[1, 3, 5]))
    assert error.value.steps == (2, 4, 6)


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    run = Run(tmp_path, every_steps=1)
    state = init_state(model(), OPTIMIZER, 0)
    spoiled = jax.tree.map(lambda leaf: leaf * np.float32("nan"), state.weights)
    with pytest.raises(NonFiniteError, match=r"^step 1: the loss is not finite, and neither are the weights"):
        run.train(3, Batches(), TrainState(state.step, spoiled, state.optimizer))
    assert run.saver.committed_step is None
    assert not (tmp_path / "steps").exists()


@dataclasses.dataclass
class Noted:
    """A hook that writes down when it came, and whether it was given a request to save."""

    every_steps: int | None
    came: list[tuple[int, bool]] = dataclasses.field(default_factory=list)

    def run(self, step: int, state: TrainState, say: Callable[[], StepFlags]) -> None:
        assert int(state.step) == step
        self.came.append((step, say().save))


@pytest.mark.parametrize(
    ("every", "first", "expected"),
    [(2, 0, [2, 4, 5]), (None, 0, [5]), (5, 0, [5]), (2, 2, [2, 4, 5]), (2, 3, [4, 5])],
    ids=["every other", "at the end only", "the last one once", "again where it restored", "restored between"],
)
def test_hooks_come_at_their_steps_and_after_the_last(
    tmp_path: Path, every: int | None, first: int, expected: list[int]
) -> None:
    run = Run(tmp_path)
    run.saver = None  # type: ignore[assignment]
    noted = Noted(every)
    run.hooks = [noted]
    state = init_state(model(), OPTIMIZER, 0)
    state = TrainState(state.step + first, state.weights, state.optimizer)
    run.train(5, Batches(taken=first), state, first=first)
    assert [step for step, _ in noted.came] == expected


class Refused:
    """A hook that all processes are refused by, as an export whose folder may not be written to."""

    every_steps: int | None = None

    def run(self, step: int, state: TrainState, say: Callable[[], StepFlags]) -> None:
        error = NotFoundError("spec.trainer.export.directory: gs://b cannot be read and written")
        error.is_shared = True
        raise error


def test_last_step_is_committed_though_what_comes_after_it_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.hooks = [Refused()]
    with pytest.raises(NotFoundError, match=r"export\.directory"):
        run.train(3, Batches())
    assert layout.committed(tmp_path) == [3]


def test_a_save_asked_for_by_the_clock_is_not_lost_to_a_hook(tmp_path: Path) -> None:
    now = [0.0]

    def tick(taken: int) -> None:
        now[0] += 10

    run = Run(tmp_path, every_seconds=35, clock=lambda: now[0])
    run.hooks = [Noted(1)]
    run.train(9, Batches(before=tick))
    assert run.saved() == [4, 8, 9], "told with batch 4, read before the hook after step 4"
    assert not any(save for _, save in run.hooks[0].came)  # type: ignore[attr-defined]


@pytest.mark.parametrize("every_steps", [None, 5], ids=["no saves", "a save before the last"])
def test_run_ends_with_its_data(tmp_path, every_steps):
    run, plain = Run(tmp_path / "run", every_steps=every_steps), Run(tmp_path / "plain")

    ending = run.train(20, Batches(count=6))

    assert (ending.step, ending.has_finished, run.saver.committed_step) == (6, True, 6)
    assert sorted(run.losses) == list(range(1, 7))
    same = plain.train(6, Batches()).state
    assert all(np.array_equal(*pair) for pair in zip(*map(jax.tree.leaves, (ending.state, same)), strict=True))


def test_run_that_goes_on_after_its_data_changes_nothing(tmp_path):
    ending = Run(tmp_path / "a").train(20, Batches(count=3))
    kept = jax.tree.map(np.asarray, ending.state.weights)

    again = Run(tmp_path / "b").train(20, Batches(taken=3, count=3), state=ending.state, first=3)

    assert again.has_finished
    assert all(np.array_equal(*pair) for pair in zip(*map(jax.tree.leaves, (again.state.weights, kept)), strict=True))


def test_state_that_became_poisoned_is_not_saved_when_asked_to_stop(tmp_path: Path) -> None:
    """The metrics of the last step are read before its state is saved: too many bad steps end the run instead."""
    run = Run(tmp_path, max_skips=0)
    batches = Batches(before=lambda taken: run.stop.request() if taken == 3 else None, poisoned=[4])
    with pytest.raises(NonFiniteError, match="step 5"):
        run.train(50, batches)
    assert run.saver.committed_step is None
