"""What the loop does between steps, from the configuration: evaluation, samples, memory profiles, the export."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import optax

from tpujob_trainer import data
from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.config.schema import BLOCK, EvaluationConfig, ProfileConfig
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.tasks.compiler import Compiler
from tpujob_trainer.tasks.dataset import EVALUATION, Dataset, shared_manifest
from tpujob_trainer.tasks.exporting import ExportHook, averaged, current
from tpujob_trainer.telemetry.memory_profiles import MemoryProfiles
from tpujob_trainer.train.batches import Assembler
from tpujob_trainer.train.eval_step import make_evaluation_step
from tpujob_trainer.train.evaluation import Evaluation
from tpujob_trainer.train.generate import Sampler, make_sampler, padded
from tpujob_trainer.train.loop import Hook
from tpujob_trainer.train.sample_hook import Samples
from tpujob_trainer.train.step import abstract_batch, abstract_state
from tpujob_trainer.train.step_logger import Progress


def make_hooks(
    run: ResolvedConfig,
    model: Model,
    dataset: Dataset,
    assembler: Assembler,
    progress: Progress,
    prompts: list[list[int]],
    *,
    compiler: Compiler,
    directory: str | None,
    runtime: Runtime,
    stop: StopRequest,
) -> list[Hook]:
    """Those that are configured, compiled where they are needed before the end.

    Args:
        run: the configuration.
        model: whose weights are evaluated.
        dataset: the training's.
        assembler: of global batches.
        progress: is told the results.
        prompts: the samples', as tokens.
        compiler: compiles them.
        directory: the checkpoint directory, which keeps the manifest of the evaluation's data.
        runtime: this process among the others.
        stop: has the last of what hooks write waited for.

    Raises:
        ConfigurationError: there is no folder to write to.
    """
    weights = abstract_state(model, optax.identity()).weights
    made: list[Hook] = []
    if run.evaluation:
        compiled = compiler.compile(
            "evaluation",
            make_evaluation_step(model, parts=run.gradient_accumulation, loss=run.loss),
            weights,
            abstract_batch(model, run.batch_size, run.sequence_length),
        )
        manifest = _manifest(run, run.evaluation, dataset, directory, runtime)
        batches = _Batches(run, run.evaluation, dataset, assembler, manifest)
        made.append(
            Evaluation(
                compiled,
                batches.open,
                assembler,
                progress,
                every_steps=run.evaluation.every_steps,
                weights_of=averaged if run.evaluation.average else current,
            )
        )
    if run.sample:
        config = run.sample

        def sampler() -> Sampler:
            longest = max(map(len, prompts))
            jitted = make_sampler(model, longest=longest, config=config, seed=run.seed)
            return compiler.compile("sample", jitted, weights, *padded([], longest))

        made.append(
            Samples(
                sampler,
                dataset.tokenizer,
                progress,
                prompts=list(zip(config.all_prompts, prompts, strict=True)),
                stop=config.stop,
                every_steps=config.every_steps,
            )
        )
    if run.profile:
        made.append(_memory_profiles(run.profile, directory, runtime, stop))
    if run.export:
        made.append(ExportHook(run, run.export, model, progress, directory=directory, runtime=runtime))
    return made


def _memory_profiles(
    config: ProfileConfig, directory: str | None, runtime: Runtime, stop: StopRequest
) -> MemoryProfiles:
    if directory is None:
        raise ConfigurationError(
            f"{BLOCK}.profile: profiles are kept in spec.checkpointDir, which is not set; set it, or leave profile out"
        )
    profiles = MemoryProfiles(
        directory, process_id=runtime.process_id, every_steps=config.memory_every_steps, keep=config.keep
    )
    stop.at_exit(lambda code, message: profiles.close())
    return profiles


def _manifest(
    run: ResolvedConfig, config: EvaluationConfig, dataset: Dataset, directory: str | None, runtime: Runtime
) -> data.Manifest:
    if config.data is None:
        return dataset.manifest
    size = run.batch_size
    return shared_manifest(config.data, batch_size=size, directory=directory, runtime=runtime, folder=EVALUATION)


class _Batches:
    """The batches of the evaluation, the same ones each time."""

    def __init__(
        self,
        run: ResolvedConfig,
        config: EvaluationConfig,
        dataset: Dataset,
        assembler: Assembler,
        manifest: data.Manifest,
    ) -> None:
        self._run = run
        self._count = config.batches
        self._tokenizer = dataset.tokenizer
        self._rows = assembler.rows
        self._source, self._manifest = config.data or run.data, manifest

    def open(self) -> contextlib.AbstractContextManager[Iterator[data.LocalBatch]]:
        return data.evaluation_batches(
            self._manifest,
            self._tokenizer,
            self._source,
            batch_size=self._run.batch_size,
            sequence_length=self._run.sequence_length,
            rows=self._rows,
            batches=self._count,
        )
