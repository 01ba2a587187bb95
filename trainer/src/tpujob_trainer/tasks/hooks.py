"""The configured hooks of the loop: evaluation, samples, callbacks, memory profiles and export."""

import contextlib
from collections.abc import Iterator

import optax

from tpujob_trainer import data
from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.config.schema import BLOCK, EvaluationConfig, ProfileConfig, SampleConfig
from tpujob_trainer.model.decoder import Weights
from tpujob_trainer.model.weights.companions import text_ends
from tpujob_trainer.session.dataset import EVALUATION, shared_manifest
from tpujob_trainer.session.session import Session
from tpujob_trainer.storage.versions import named
from tpujob_trainer.tasks.exporting import Exporter, ExportHook, averaged, current
from tpujob_trainer.tasks.parts import Parts
from tpujob_trainer.telemetry.profiler import MemoryProfiles
from tpujob_trainer.train.batches import Assembler
from tpujob_trainer.train.evaluation import Evaluation, make_evaluation_step, no_tokens
from tpujob_trainer.train.generate import Sampler, make_sampler, padded
from tpujob_trainer.train.hooks import Callback, Samples
from tpujob_trainer.train.loop import Hook
from tpujob_trainer.train.step import abstract_batch, abstract_state
from tpujob_trainer.train.step_logger import Progress
from tpujob_trainer.values.errors import ConfigurationError


def make_hooks(parts: Parts, assembler: Assembler, progress: Progress) -> list[Hook]:
    """The configured hooks; those that run before the last step are compiled here.

    Raises:
        ConfigurationError: there is no folder to write to.
    """
    run = parts.run
    made: list[Hook] = []
    if run.evaluation:
        made.append(_evaluation(run.evaluation, parts, assembler, progress))
    if run.sample:
        made.append(_samples(run.sample, parts, progress))
    talk = parts.session.runtime.coordination
    made += [Callback(each, number, progress, talk) for number, each in enumerate(run.callbacks)]
    if run.profile:
        made.append(_memory_profiles(run.profile, parts.session))
    if run.export:
        made.append(ExportHook(Exporter(run, run.export, parts.model, parts.session), progress))
    return made


def _evaluation(config: EvaluationConfig, parts: Parts, assembler: Assembler, progress: Progress) -> Evaluation:
    run, model = parts.run, parts.model
    batches = _Batches(run, config, parts, assembler)
    batches.require_tokens()
    compiled = parts.compiler.compile(
        "evaluation",
        make_evaluation_step(
            model,
            parts=run.gradient_accumulation,
            loss=run.loss,
            metrics=[metric.name for metric in config.metrics],
        ),
        _abstract_weights(parts),
        abstract_batch(model, run.batch_size, run.sequence_length),
    )
    return Evaluation(
        compiled,
        batches.open,
        assembler,
        progress,
        every_steps=config.every_steps,
        weights_of=averaged if config.average else current,
        metrics=[metric.function for metric in config.metrics],
        record=parts.checkpointing.record_evaluation,
    )


def _samples(config: SampleConfig, parts: Parts, progress: Progress) -> Samples:
    def sampler() -> Sampler:
        longest = max(len(prompt.tokens) for prompt in parts.prompts)
        jitted = make_sampler(parts.model, longest=longest, config=config, seed=parts.run.seed)
        compiled: Sampler = parts.compiler.compile("sample", jitted, _abstract_weights(parts), *padded([], longest))
        return compiled

    return Samples(
        sampler,
        parts.dataset.tokenizer,
        progress,
        prompts=parts.prompts,
        ends=text_ends(parts.dataset.tokenizer.eos, parts.run.weights_from),
        stop=config.stop,
        every_steps=config.every_steps,
    )


def _abstract_weights(parts: Parts) -> Weights:
    weights: Weights = abstract_state(parts.model, optax.identity()).weights
    return weights


def _memory_profiles(config: ProfileConfig, session: Session) -> MemoryProfiles:
    if session.directory is None:
        raise ConfigurationError(
            f"{BLOCK}.profile: profiles are kept in spec.checkpointDir, which is not set; set it, or leave profile out"
        )
    profiles = MemoryProfiles(
        session.directory,
        process_id=session.runtime.process_id,
        every_steps=config.memory_every_steps,
        keep=config.keep,
    )
    session.stop.at_exit(lambda code, message: profiles.close())
    return profiles


class _Batches:
    """The batches of the evaluation, the same each time."""

    def __init__(self, run: ResolvedConfig, config: EvaluationConfig, parts: Parts, assembler: Assembler) -> None:
        """Makes the list of the data, or reads the stored one."""
        self._run = run
        self._rows = assembler.rows
        self._source, manifest = run.data, parts.dataset.manifest
        self._block = f"{BLOCK}.data."
        if config.data is not None:
            self._source, self._block = config.data, f"{BLOCK}.evaluation.data."
            with named(self._block):
                manifest = shared_manifest(config.data, parts.session, batch_size=run.batch_size, folder=EVALUATION)
        self._open = data.evaluation_batches(
            manifest,
            parts.dataset.tokenizer,
            self._source,
            batch_size=run.batch_size,
            sequence_length=run.sequence_length,
            rows=assembler.rows,
            batches=config.batches,
        )

    def require_tokens(self) -> None:
        """Reads the first batch of data of its own, so that the run does not end at its first evaluation.

        Raises:
            ConfigurationError: none of its rows can be used, or none of its batches has a token to predict.
        """
        if self._source is self._run.data:
            return
        with self.open() as batches:
            # Another process may have rows with tokens where this one has none.
            has_tokens = any(batch.loss_mask.any() or len(self._rows) < self._run.batch_size for batch in batches)
        if not has_tokens:
            raise no_tokens()

    @contextlib.contextmanager
    def open(self) -> Iterator[Iterator[data.LocalBatch]]:
        with named(self._block), self._open() as batches:
            yield batches
