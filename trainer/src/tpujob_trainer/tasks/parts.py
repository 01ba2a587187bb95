"""The parts of a pretraining run, assembled before its state is restored or created."""

import dataclasses
import logging

import jax
import optax

from tpujob_trainer import data
from tpujob_trainer.config.resolve import ResolvedConfig, resolve
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.model.chips import BY_KIND
from tpujob_trainer.model.custom_model import make_model
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.weights.read_shape import with_shape_read
from tpujob_trainer.session.checkpointing import Checkpointing
from tpujob_trainer.session.dataset import Dataset, training_data
from tpujob_trainer.session.session import Session
from tpujob_trainer.tasks.compiler import Compiler, refuse_too_large_a_state
from tpujob_trainer.tasks.exporting import folder_of
from tpujob_trainer.tasks.rollback_log import Rollbacks
from tpujob_trainer.train.arithmetic import training_flops_per_token
from tpujob_trainer.train.generate import Prompt, prompts_of
from tpujob_trainer.train.optimizer import make_optimizer, make_schedule
from tpujob_trainer.train.step import abstract_state

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of an attempt, which its restores do not change."""

    session: Session
    run: ResolvedConfig
    prompts: list[Prompt]
    """Of `sample`."""
    model: Model
    schedule: optax.Schedule
    optimizer: optax.GradientTransformation
    dataset: Dataset
    checkpointing: Checkpointing
    rollbacks: Rollbacks
    compiler: Compiler


def assemble(session: Session, config: TrainerConfig) -> Parts:
    """The parts of a run; a configuration that cannot train is refused before anything is compiled.

    Raises:
        TrainerError: a subclass, by cause.
    """
    config = dataclasses.replace(config, model=with_shape_read(config.model))
    tokenizer = data.load_tokenizer(config.data)
    run = resolve(
        config,
        num_devices=jax.device_count(),
        vocabulary=tokenizer.vocab_size,
        platform=jax.default_backend(),
        slices=session.slices,
        chip=BY_KIND.get(jax.devices()[0].device_kind),
    )
    mesh = build_mesh(slices=session.slices, shape=run.mesh)
    prompts = []
    if run.sample:
        prompts = prompts_of(run.sample, tokenizer, run.data, sequence_length=run.sequence_length)
    model = make_model(run.model, mesh, run.lora)
    _log_run(session, run, model)
    if run.export:
        folder_of(run.export, session.directory)  # refused now, not after the training
    compiler = Compiler(session.runtime, session.report)
    dataset = training_data(run, tokenizer, session)
    schedule = make_schedule(run.optimizer, steps=run.steps)
    optimizer = make_optimizer(run.optimizer, schedule, has_adapters=run.lora is not None)
    refuse_too_large_a_state(abstract_state(model, optimizer))
    return Parts(
        session=session,
        run=run,
        prompts=prompts,
        model=model,
        schedule=schedule,
        optimizer=optimizer,
        dataset=dataset,
        checkpointing=Checkpointing(run, dataset.described, session),
        rollbacks=Rollbacks(session.directory, session.runtime.coordination),
        compiler=compiler,
    )


def _log_run(session: Session, run: ResolvedConfig, model: Model) -> None:
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
