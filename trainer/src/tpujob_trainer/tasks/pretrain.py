"""Pretraining: puts the parts together, restores or starts anew, and trains."""

from __future__ import annotations

import dataclasses
import functools
import logging

import jax
import numpy as np

from tpujob_contract import DistributedProcess, ExitCode, LocalProcess
from tpujob_trainer import data
from tpujob_trainer.config.resolve import ResolvedConfig, resolve
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh import build_mesh
from tpujob_trainer.model.own import make_model
from tpujob_trainer.model.weights.load import with_shape_read
from tpujob_trainer.tasks.attempt import Training
from tpujob_trainer.tasks.checkpointing import Checkpointing
from tpujob_trainer.tasks.compiler import Compiler, refuse_too_large_a_state
from tpujob_trainer.tasks.dataset import training_data
from tpujob_trainer.tasks.exporting import export_if_missing, folder_of
from tpujob_trainer.tasks.hooks import make_hooks
from tpujob_trainer.tasks.restore_or_init import restore_or_init
from tpujob_trainer.tasks.rollback_log import Rollbacks
from tpujob_trainer.tasks.session import Session
from tpujob_trainer.tasks.trackers import make_trackers
from tpujob_trainer.telemetry.profiler import Profiler
from tpujob_trainer.telemetry.report import Report
from tpujob_trainer.train.batches import Assembler
from tpujob_trainer.train.flops import training_flops_per_token, utilisation
from tpujob_trainer.train.generate import prompt_tokens
from tpujob_trainer.train.optimizer import make_optimizer, make_schedule
from tpujob_trainer.train.step import abstract_batch, abstract_state, make_finite_check, make_train_step
from tpujob_trainer.train.step_logger import Progress
from tpujob_trainer.train.token_loss import RouterFactors

logger = logging.getLogger(__name__)

TRACKERS_EXIT_SECONDS = 3.0
"""For the trackers to write what is left, when the process ends out of order."""
TRACKERS_SECONDS = 10.0
"""For the trackers to tell what is left, at the end. Less than the other processes wait."""


def run(
    process: DistributedProcess | LocalProcess, config: TrainerConfig, stop: StopRequest, *, in_pod: bool = False
) -> int:
    """Trains as configured; the exit code of this process.

    Raises:
        TrainerError: of the class whose exit code says why.
    """
    process_id = process.process_id if isinstance(process, DistributedProcess) else 0
    profiler = Profiler(process.checkpoint_dir, process_id=process_id)
    session = Session.start(process, config, stop, in_pod=in_pod, profiler=profiler)
    code = _pretrain(session, config, profiler)
    session.end()
    return code


def _pretrain(session: Session, config: TrainerConfig, profiler: Profiler) -> int:
    config = dataclasses.replace(config, model=with_shape_read(config.model))
    tokenizer = data.load_tokenizer(config.data)
    run = resolve(
        config,
        num_devices=jax.device_count(),
        vocabulary=tokenizer.vocab_size,
        platform=jax.default_backend(),
        slices=session.slices,
    )
    mesh = build_mesh(slices=session.slices, shape=run.mesh)
    prompts = prompt_tokens(run.sample, tokenizer, sequence_length=run.sequence_length) if run.sample else []
    model = make_model(run.model, mesh, run.lora)
    _tell(session, run, model)
    runtime, report, directory = session.runtime, session.report, session.directory
    if run.export:
        folder_of(run.export, directory)  # refused now, not after the training
    compiler = Compiler(runtime, report)
    dataset = training_data(run, tokenizer, directory=directory, runtime=runtime)
    schedule = make_schedule(run.optimizer, steps=run.steps)
    optimizer = make_optimizer(run.optimizer, schedule, has_adapters=run.lora is not None)
    refuse_too_large_a_state(abstract_state(model, optimizer))
    checkpointing = Checkpointing(
        run,
        dataset.described,
        directory=directory,
        claim=session.claim,
        runtime=runtime,
        report=report,
        metrics=session.metrics,
        stop=session.stop,
    )
    checkpoints = checkpointing.checkpoints
    rollbacks = Rollbacks(directory, runtime.coordination)

    state, position = restore_or_init(
        checkpoints, model, optimizer, dataset.plan, run.seed, report=report, weights_from=run.weights_from
    )
    first = int(np.asarray(state.step))
    session.goodput.restored(first)
    if first >= run.steps:
        if run.export:
            # An attempt that was ended between the last commit and the export.
            export_if_missing(run, run.export, model, first, state, directory=directory, runtime=runtime)
        return _already_complete(report, first, f"{first} of {run.steps} steps", "raise spec.trainer.steps or tokens")
    if position is not None and data.has_ended(position, dataset.plan):
        return _already_complete(report, first, f"all {run.data.epochs} epochs of its data", "begin another run")
    train_step = compiler.compile(
        "step",
        make_train_step(
            model,
            optimizer,
            schedule,
            clip_norm=run.optimizer.clip_norm,
            gradient_accumulation=run.gradient_accumulation,
            z_loss=run.z_loss,
            router=RouterFactors(run.router_balance_loss, run.router_z_loss),
            loss=run.loss,
        ),
        abstract_state(model, optimizer),
        abstract_batch(model, run.batch_size, run.sequence_length),
    )
    assembler = Assembler(mesh, run.batch_size, dataset.plan.lanes)
    trackers = make_trackers(run, directory=directory, runtime=runtime, metrics=session.metrics, first_step=first)
    session.stop.at_exit(lambda code, message: trackers.close(TRACKERS_EXIT_SECONDS))
    progress = Progress(
        report,
        session.metrics,
        steps=run.steps,
        log_every_steps=run.log_every_steps,
        is_lead=runtime.is_lead,
        mfu=functools.partial(
            utilisation,
            flops_per_token=training_flops_per_token(run.model, run.sequence_length),
            device_kind=jax.devices()[0].device_kind,
            devices=mesh.size,
        ),
        causal_fraction=training_flops_per_token(run.model, run.sequence_length, is_causal=True)
        / training_flops_per_token(run.model, run.sequence_length),
        trackers=trackers,
    )
    hooks = make_hooks(
        run,
        model,
        dataset,
        assembler,
        progress,
        prompts,
        compiler=compiler,
        directory=directory,
        runtime=runtime,
        stop=session.stop,
    )
    training = Training(
        runtime=runtime,
        report=report,
        metrics=session.metrics,
        stop=session.stop,
        config=run,
        model=model,
        optimizer=optimizer,
        dataset=dataset,
        checkpointing=checkpointing,
        rollbacks=rollbacks,
        train_step=train_step,
        weights_are_finite=make_finite_check(model),
        assembler=assembler,
        progress=progress,
        hooks=hooks,
        profiler=profiler,
    )
    ending = training.run(state, position)
    trackers.close(TRACKERS_SECONDS)
    if not ending.has_finished:
        logger.info("Step %d of %d: stopped as asked", ending.step, run.steps)
        return ExitCode.STOPPED
    if checkpoints:
        checkpoints.close()
    logger.info("Finished: %d steps, %d tokens", ending.step, ending.step * run.tokens_per_step)
    return ExitCode.FINISHED


def _tell(session: Session, run: ResolvedConfig, model: Model) -> None:
    session.report.update(steps=run.steps)
    if not session.runtime.is_lead:
        return
    logger.info("Configuration: %s", run.as_json())
    logger.info(
        "Model: %.2f M parameters, %.3g FLOPs for each token; mesh %s (%s); %d steps of %d tokens",
        run.model.num_parameters / 1e6,
        training_flops_per_token(run.model, run.sequence_length),
        {axis: size for axis, size in model.mesh.shape.items() if size > 1},
        run.mesh.reason,
        run.steps,
        run.tokens_per_step,
    )
    if session.directory is None:
        logger.warning("spec.checkpointDir is not set: this run saves nothing, and cannot be resumed")


def _already_complete(report: Report, step: int, has: str, to_train_on: str) -> int:
    message = f"complete: the checkpoint has {has}, nothing is left to do; to train on, {to_train_on}"
    logger.info("%s", message)
    report.update(step=step, message=message)
    return ExitCode.FINISHED
