"""What the loop does between steps, from the configuration: evaluation and samples."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import optax

from tpujob_trainer import data
from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.config.schema import EvaluationConfig
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.tasks.compiler import Compiler
from tpujob_trainer.tasks.dataset import EVALUATION, Dataset, shared_manifest
from tpujob_trainer.train.batches import Assembler
from tpujob_trainer.train.eval_step import make_evaluation_step
from tpujob_trainer.train.evaluation import Evaluation
from tpujob_trainer.train.generate import make_sampler
from tpujob_trainer.train.loop import Hook
from tpujob_trainer.train.sample_hook import Sampler, Samples
from tpujob_trainer.train.step import abstract_batch, abstract_state
from tpujob_trainer.train.step_logger import Progress


def make_hooks(
    run: ResolvedConfig,
    model: Model,
    dataset: Dataset,
    assembler: Assembler,
    progress: Progress,
    prompt: list[int],
    *,
    compiler: Compiler,
    directory: str | None,
    runtime: Runtime,
) -> list[Hook]:
    """Those that are configured, compiled where they are needed before the end.

    Args:
        run: the configuration.
        model: whose weights are evaluated.
        dataset: the training's.
        assembler: of global batches.
        progress: is told the results.
        prompt: the sample's, as tokens.
        compiler: compiles them.
        directory: the checkpoint directory, which keeps the manifest of the evaluation's data.
        runtime: this process among the others.
    """
    weights = abstract_state(model, optax.identity()).weights
    made: list[Hook] = []
    if run.evaluation:
        compiled = compiler.compile(
            "evaluation",
            make_evaluation_step(model, parts=run.gradient_accumulation),
            weights,
            abstract_batch(model, run.batch_size, run.sequence_length),
        )
        manifest = _manifest(run, run.evaluation, dataset, directory, runtime)
        batches = _Batches(run, run.evaluation, dataset, assembler, manifest)
        made.append(Evaluation(compiled, batches.open, assembler, progress, every_steps=run.evaluation.every_steps))
    if run.sample:
        config = run.sample

        def sampler() -> Sampler:
            jitted = make_sampler(model, prompt=prompt, config=config, seed=run.seed)
            return compiler.compile("sample", jitted, weights)

        made.append(Samples(sampler, dataset.tokenizer, progress, prompt=config.prompt, every_steps=config.every_steps))
    return made


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
