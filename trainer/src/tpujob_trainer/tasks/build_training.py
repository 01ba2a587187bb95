"""Builds what the loop needs from the parts of a run: compiled step, trackers, progress and hooks."""

from __future__ import annotations

import functools
import json

import jax

from tpujob_trainer.session.trackers import make_trackers
from tpujob_trainer.tasks.hooks import make_hooks
from tpujob_trainer.tasks.parts import Parts
from tpujob_trainer.tasks.training import Training
from tpujob_trainer.telemetry.trackers import Trackers
from tpujob_trainer.train.batches import Assembler
from tpujob_trainer.train.flops import training_flops_per_token, utilisation
from tpujob_trainer.train.run_step import make_run_step
from tpujob_trainer.train.step import TrainStep, abstract_batch, abstract_state, make_finite_check
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
