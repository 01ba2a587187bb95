"""The training of an attempt, from a state to the last step: its parts, the loop, and rollbacks."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax

from tpujob_trainer import data
from tpujob_trainer.model.decoder import Weights
from tpujob_trainer.session.trackers import make_trackers
from tpujob_trainer.tasks.hooks import make_hooks
from tpujob_trainer.tasks.parts import Parts
from tpujob_trainer.tasks.restore_or_init import StartingPoint, restore_or_init
from tpujob_trainer.telemetry.trackers import Trackers
from tpujob_trainer.train.arithmetic import training_flops_per_token, utilisation
from tpujob_trainer.train.batches import Assembler, Feed
from tpujob_trainer.train.loop import ExitResult, Hook, Loop
from tpujob_trainer.train.nonfinite import NonFiniteError, SkipBatches, SkipBudget, batches_to_leave_out, go_back_below
from tpujob_trainer.train.step import TrainStep, abstract_batch, abstract_state, make_finite_check, make_run_step
from tpujob_trainer.train.step_logger import Progress


def build_training(parts: Parts, *, first_step: int) -> Training:
    """The training of an attempt that starts after `first_step` steps; all processes must call this.

    Raises:
        ConfigurationError: a tracker's package or a folder is missing, or the step does not fit into memory.
    """
    session, run = parts.session, parts.run
    train_step = _compile_step(parts)
    assembler = Assembler(parts.model.mesh, run.batch_size, parts.dataset.plan.lanes)
    trackers = make_trackers(
        run.trackers,
        session,
        first_step=first_step,
        summary={**json.loads(run.as_json()), "numParameters": run.model.num_parameters},
        keeps_samples=run.sample is not None,
    )
    progress = _make_progress(parts, trackers)
    return Training(
        parts=parts,
        train_step=train_step,
        weights_are_finite=make_finite_check(parts.model),
        assembler=assembler,
        progress=progress,
        trackers=trackers,
        hooks=make_hooks(parts, assembler, progress),
    )


def _compile_step(parts: Parts) -> TrainStep:
    run, model = parts.run, parts.model
    step: TrainStep = parts.compiler.compile(
        "step",
        make_run_step(run, model, parts.optimizer, parts.schedule),
        abstract_state(model, parts.optimizer),
        abstract_batch(model, run.batch_size, run.sequence_length),
    )
    return step


def _make_progress(parts: Parts, trackers: Trackers) -> Progress:
    session, run = parts.session, parts.run
    flops = training_flops_per_token(run.model, run.sequence_length)
    causal_flops = training_flops_per_token(run.model, run.sequence_length, is_causal=True)
    return Progress(
        session.report,
        session.metrics,
        steps=run.steps,
        log_every_steps=run.log_every_steps,
        is_lead=session.runtime.is_lead,
        tokens_per_step=run.tokens_per_step,
        mfu=functools.partial(
            utilisation,
            flops_per_token=flops,
            device_kind=jax.devices()[0].device_kind,
            devices=parts.model.mesh.size,
        ),
        causal_fraction=causal_flops / flops,
        trackers=trackers,
    )


logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Training:
    """The parts of a run, and everything compiled that the loop needs."""

    parts: Parts
    train_step: TrainStep
    weights_are_finite: Callable[[Weights], jax.Array]
    assembler: Assembler
    progress: Progress
    trackers: Trackers
    hooks: Sequence[Hook]

    def run(self, start: StartingPoint) -> ExitResult:
        """Trains until all steps are done or a stop is requested.

        Raises:
            NonFiniteError: the loss is not finite, and no more rollbacks are allowed.
        """
        while True:
            first, taken = start.step, start.batches_taken  # the first step donates the state
            try:
                return self._loop(start)
            except NonFiniteError as error:
                # Without the frames: they reference the state, whose memory the restored one needs.
                found = error.with_traceback(None)
            start = self._go_back(found, first=first, taken=taken)

    def _loop(self, start: StartingPoint) -> ExitResult:
        parts, dataset, session = self.parts, self.parts.dataset, self.parts.session
        with data.BatchLoader(
            dataset.manifest,
            dataset.tokenizer,
            dataset.plan,
            parts.run.sequence_length,
            rows=self.assembler.rows,
            state=start.position,
            prefetch=parts.run.data.prefetch_batches,
        ) as loader:
            batches = SkipBatches(loader, taken=start.batches_taken, left_out=parts.rollbacks.left_out)
            loop = Loop(
                train_step=self.train_step,
                feed=Feed(batches, self.assembler, loader.state),
                weights_are_finite=self.weights_are_finite,
                skips=SkipBudget(parts.run.non_finite),
                saver=parts.checkpointing.checkpoints,
                policy=parts.checkpointing.policy,
                progress=self.progress,
                hooks=self.hooks,
                profiler=session.profiler,
            )
            session.stop.entered_loop()
            try:
                return loop.run(start.state, first=start.step, steps=parts.run.steps)
            finally:
                session.profiler.close()
                session.stop.left_loop()

    def _go_back(self, error: NonFiniteError, *, first: int, taken: int) -> StartingPoint:
        parts, session = self.parts, self.parts.session
        batches = batches_to_leave_out(error.steps, first=first, taken=taken, left_out=parts.rollbacks.left_out)
        attempt = session.runtime.attempt_id
        parts.rollbacks.remember(error, batches, allowed=parts.run.non_finite.rollbacks, attempt=attempt)
        checkpoints = parts.checkpointing.checkpoints
        assert checkpoints is not None
        start = restore_or_init(parts, below=go_back_below(error.steps), reason=str(error))
        lost = session.report.snapshot()["lost_steps"]
        session.report.update(lost_steps=lost + error.steps[-1] - start.step)
        session.metrics.rollbacks.inc()
        logger.warning(
            "%s: went back to step %d; batches %s are left out from now on",
            error,
            start.step,
            ", ".join(map(str, batches)),
        )
        return start
