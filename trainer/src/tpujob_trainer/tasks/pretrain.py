"""Pretraining: puts the parts together, restores or begins, trains, and writes a sample."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import optax
from jax.sharding import NamedSharding

from tpujob_contract import DistributedProcess, ExitCode
from tpujob_trainer import data
from tpujob_trainer.batches import Assembler, Feed
from tpujob_trainer.checkpoint import Checkpoints
from tpujob_trainer.config import TrainerConfig
from tpujob_trainer.config_resolved import ResolvedConfig, resolve
from tpujob_trainer.flops import training_flops_per_token
from tpujob_trainer.loop import Loop, checkpoint_tree
from tpujob_trainer.mesh import build_mesh
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.partitioning import REPLICATED
from tpujob_trainer.optimizer import make_optimizer, make_schedule
from tpujob_trainer.progress import Progress
from tpujob_trainer.sampling import make_sampler, prompt_tokens, until_end
from tpujob_trainer.saves import Saves
from tpujob_trainer.saving import SaveClock
from tpujob_trainer.session import Session
from tpujob_trainer.stopping import StopRequest
from tpujob_trainer.train_step import TrainState, abstract_batch, abstract_state, init_state, make_train_step

logger = logging.getLogger(__name__)

MANIFEST_LIMIT_SECONDS = 3600.0
"""For process 0 to read the footers of all files."""


def run(
    process: DistributedProcess | None, config: TrainerConfig, environ: Mapping[str, str], stop: StopRequest
) -> int:
    """Trains as configured; the exit code of this process.

    Raises:
        TrainerError: of the class whose exit code says why.
    """
    session = Session.begin(process, config, environ, stop)
    code = _pretrain(session, config)
    session.end()
    return code


def _pretrain(session: Session, config: TrainerConfig) -> int:
    mesh = build_mesh(slices=session.slices)
    tokenizer = data.load_tokenizer(config.data)
    run = resolve(config, num_devices=mesh.size, vocabulary=tokenizer.vocab_size, platform=jax.default_backend())
    prompt = prompt_tokens(run.sample, tokenizer, sequence_length=run.sequence_length) if run.sample else []
    model = Model(run.model, mesh)
    _tell(session, run, model)
    manifest = _shared_manifest(session, run)
    plan = data.plan_lanes(manifest, run.data, batch_size=run.batch_size, seed=run.seed)
    schedule = make_schedule(run.optimizer, steps=run.steps)
    optimizer = make_optimizer(run.optimizer, schedule)
    saves = Saves(session, run, data.describe_data(manifest, tokenizer, plan, run.sequence_length))

    state, position = _restore_or_init(session, saves.checkpoints, model, optimizer, plan, run.seed)
    first = int(np.asarray(state.step))
    if first >= run.steps:
        return _already_complete(session, first, run.steps)
    train_step = session.compiled(
        "step",
        make_train_step(
            model,
            optimizer,
            schedule,
            clip_norm=run.optimizer.clip_norm,
            gradient_accumulation=run.gradient_accumulation,
        ),
        abstract_state(model, optimizer),
        abstract_batch(model, run.batch_size, run.sequence_length),
    )
    assembler = Assembler(mesh, run.batch_size)
    is_lead = session.runtime.is_lead
    with data.BatchLoader(
        manifest, tokenizer, plan, run.sequence_length, rows=assembler.rows, state=position
    ) as loader:
        loop = Loop(
            train_step=train_step,
            feed=Feed(loader, assembler, loader.state),
            saver=saves.checkpoints,
            config=run.checkpoint,
            clock=SaveClock(run.checkpoint, decides=is_lead and saves.checkpoints is not None),
            progress=Progress(
                session.report,
                session.metrics,
                steps=run.steps,
                log_every_steps=run.log_every_steps,
                is_lead=is_lead,
            ),
            report=session.report,
            stop=session.stop,
            save_seconds=lambda: saves.seconds,
        )
        session.stop.entered_loop()
        ending = loop.run(state, first=first, steps=run.steps)
        session.stop.left_loop()
    if not ending.has_finished:
        logger.info("Step %d of %d: stopped as asked", ending.step, run.steps)
        return ExitCode.STOPPED
    if run.sample:
        _write_sample(session, model, ending.state, prompt, run, tokenizer)
    if saves.checkpoints:
        saves.checkpoints.close()
    logger.info("Finished: %d steps, %d tokens", ending.step, ending.step * run.tokens_per_step)
    return ExitCode.FINISHED


def _tell(session: Session, run: ResolvedConfig, model: Model) -> None:
    session.report.update(steps=run.steps)
    if not session.runtime.is_lead:
        return
    logger.info("Configuration: %s", run.as_json())
    logger.info(
        "Model: %.2f M parameters, %.3g FLOPs for each token; mesh %s; %d steps of %d tokens",
        run.model.num_parameters / 1e6,
        training_flops_per_token(run.model, run.sequence_length),
        dict(model.mesh.shape),
        run.steps,
        run.tokens_per_step,
    )
    if session.directory is None:
        logger.warning("spec.checkpointDir is not set: this run saves nothing, and cannot be resumed")


def _shared_manifest(session: Session, run: ResolvedConfig) -> data.Manifest:
    """The data's units: made once by process 0 and kept beside the checkpoint, for all processes and attempts."""
    directory = session.directory
    if directory is None:
        return data.make_manifest(run.data, batch_size=run.batch_size)
    if "://" not in directory:
        directory = str(Path(directory).absolute())

    def make() -> str:
        manifest = data.read_manifest(directory, run.data)
        if manifest is None:
            manifest = data.make_manifest(run.data, batch_size=run.batch_size)
            data.write_manifest(manifest, directory)
        else:
            data.verify_unchanged(manifest, run.data)
        return manifest.fingerprint

    fingerprint = session.runtime.coordination.lead_decides("manifest", make, limit_seconds=MANIFEST_LIMIT_SECONDS)
    manifest = data.read_manifest(directory, run.data)
    assert manifest is not None
    assert manifest.fingerprint == fingerprint
    return manifest


def _restore_or_init(
    session: Session,
    checkpoints: Checkpoints | None,
    model: Model,
    optimizer: optax.GradientTransformation,
    plan: data.LanePlan,
    seed: int,
) -> tuple[TrainState, np.ndarray | None]:
    """The state to train from, and the data position that belongs to it (None: the beginning).

    The newest checkpoint that all processes can read; where there is none at all, fresh weights, made on the devices
    that keep them.
    """
    if checkpoints:
        session.report.enter("restoring")
        position = jax.ShapeDtypeStruct(
            data.state_shape(plan), np.int32, sharding=NamedSharding(model.mesh, REPLICATED)
        )
        restored = checkpoints.restore(checkpoint_tree(abstract_state(model, optimizer), position))
        if restored is not None:
            step, tree = restored
            session.report.update(
                step=step, restored_from=step, committed_step=step, committed_time=checkpoints.committed_time
            )
            logger.info("Restored the checkpoint of step %d", step)
            state = TrainState(step=tree["step"], weights=tree["weights"], optimizer=tree["optimizer"])
            return state, np.asarray(tree["data"])
    session.report.enter("compiling")
    return init_state(model, optimizer, seed), None


def _already_complete(session: Session, step: int, steps: int) -> int:
    message = (
        f"complete: the checkpoint has {step} of {steps} steps, nothing is left to do; "
        "to train on, raise spec.trainer.steps or tokens"
    )
    logger.info("%s", message)
    session.report.update(step=step, message=message)
    return ExitCode.FINISHED


def _write_sample(
    session: Session,
    model: Model,
    state: TrainState,
    prompt: list[int],
    run: ResolvedConfig,
    tokenizer: data.Tokenizer,
) -> None:
    """A text by the trained model, into the report and process 0's log; every process computes it."""
    assert run.sample is not None
    sampler = make_sampler(model, prompt=prompt, config=run.sample, seed=run.seed)
    compiled = session.compiled("sample", sampler, abstract_state(model, optax.identity()).weights)
    session.report.enter("sampling")
    tokens = until_end(np.asarray(compiled(state.weights)).tolist(), tokenizer.eos)
    text = run.sample.prompt + tokenizer.decode(tokens)
    session.report.update(sample=text)
    if session.runtime.is_lead:
        logger.info("Sample: %s", json.dumps(text, ensure_ascii=False))
