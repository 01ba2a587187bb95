"""A batch job: independent workers on a corpus, for any task.

- The first worker lists the corpus and divides it into work units; all others read its list.
- Before anything is computed, the directory is checked to be this job's, with the same task, model, corpus and image.
- A worker ends with 0 when every work unit is done, by any worker: then the job is complete.
"""

from pathlib import Path
from typing import Any

from tpujob_contract import DistributedProcess, Process
from tpujob_trainer import data
from tpujob_trainer.checkpoint import ownership
from tpujob_trainer.config.schema import BLOCK, TrainerConfig
from tpujob_trainer.corpus.extract import batches, description, units
from tpujob_trainer.corpus.extract.batch_size import automatic_rows
from tpujob_trainer.corpus.extract.batched import BatchedWork
from tpujob_trainer.corpus.extract.programs import Program
from tpujob_trainer.corpus.extract.rows import tokens_of
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.distributed.host_check import versions
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.shape import described
from tpujob_trainer.storage import is_local, open_bucket
from tpujob_trainer.tasks.batch.parts import BatchParts, assemble_batch, make_weights, weights_fingerprint
from tpujob_trainer.tasks.batch.worker import Worker
from tpujob_trainer.values.errors import ConfigurationError


def identity_of(parts: BatchParts) -> dict[str, Any]:
    """The values that determine the output, by field."""
    task, manifest = parts.task, parts.manifest
    return {
        "corpus": manifest.fingerprint,
        "units": manifest.num_units,
        "rows": manifest.num_rows,
        "sources": [source.root for source in manifest.sources],
        description.TASK: task.name,
        f"{BLOCK}.model": described(parts.shape),
        description.FROM: parts.config.model.from_,
        f"{BLOCK}.seed": parts.config.seed,
        f"{BLOCK}.data.tokenizer": parts.tokenizer.fingerprint,
        f"{BLOCK}.sequenceLength": parts.length,
        **{f"{task.field}.{key}": value for key, value in task.described.items()},
        f"{task.field}.format": task.units.format,
        **_columns(manifest),
        description.IMAGE: description.image(versions()),
    }


def _columns(manifest: data.Manifest) -> dict[str, Any]:
    """The special-token handling by field; none for plain text and tokens, with the same IDs as in earlier releases."""
    found = {}
    for number, source in enumerate(manifest.sources):
        is_plain = source.column.kind in ("text", "tokens") and source.column.special_tokens != "text"
        if not is_plain:
            part = f"mixture[{number}]." if number else ""  # the first keeps its key, for jobs that are resumed
            found[f"{BLOCK}.data.{part}specialTokens"] = source.column.special_tokens
    return found


def run(
    process: Process,
    config: TrainerConfig,
    stop: StopRequest,
    *,
    in_pod: bool = False,
) -> int:
    """Works until every work unit is done; returns the exit code of this process.

    Raises:
        TrainerError: a subclass, by cause.
    """
    directory = process.checkpoint_dir
    if not directory:
        raise ConfigurationError(f"spec.checkpointDir: required for task: {config.task}, which writes its files there")
    if isinstance(process, DistributedProcess) and process.num_processes > 1:
        raise ConfigurationError(
            f"{BLOCK}.task: {config.task} is for independent workers, and this job has {process.num_processes} "
            "processes of one runtime; set spec.workers, and an accelerator of one host"
        )
    if is_local(directory):
        directory = str(Path(directory).absolute())
        Path(directory).mkdir(parents=True, exist_ok=True)
    worker = Worker.start(process, config, stop, directory, in_pod=in_pod)
    ownership.own(open_bucket(directory), worker.owner, config.checkpoint.adopt)
    return _work(worker, process, config)


def _work(worker: Worker, process: Process, config: TrainerConfig) -> int:
    parts = assemble_batch(worker, process, config)
    task, manifest = parts.task, parts.manifest
    program = _load_program(parts)
    worker.report.enter("compiling")
    work = _batched(parts, program)
    work.compile()
    unit_rows = None if manifest.num_rows is None else manifest.unit_count
    return worker.work(work, manifest.num_units, task.units, task.field, unit_rows)


def _load_program(parts: BatchParts) -> Program:
    """The task's function with its weights, which are checked to be those that the job started with."""
    worker, config, task = parts.worker, parts.config, parts.task
    objects = open_bucket(worker.directory)
    accepted = task.units.accept_other_image
    description.require_same(objects, identity_of(parts), field=task.field, accept_other_image=accepted)
    worker.report.enter("restoring")
    model = Model(parts.shape, build_mesh(slices=1))
    weights = make_weights(parts.source, model)
    origin = config.model.from_ or f"seed {config.seed}"
    description.require_same_weights(objects, weights_fingerprint(weights), origin)
    return task.make(model, weights)


def _batched(parts: BatchParts, program: Program) -> BatchedWork:
    """The program for rows of the corpus, in batches of a few lengths."""
    config, task = parts.config, parts.task
    first = units.first_samples(parts.manifest)
    tokens = tokens_of(
        parts.manifest,
        parts.tokenizer,
        vocab_size=parts.shape.vocab_size,
        longest=parts.length,
        is_cut=task.is_cut,
        is_prompt=task.is_prompt,
        retry_seconds=config.data.retry_seconds,
    )
    return BatchedWork(
        task.units,
        tokens,
        program,
        buckets=batches.bucket_lengths(parts.length, task.units.buckets),
        batch=_batch(config, program, parts.length),
        first_sample=lambda unit: int(first[unit]),
        arrange=task.arrange,
        flops=task.flops,
        on_batch=parts.worker.report.tick,
    )


def _batch(config: TrainerConfig, program: Program, length: int) -> int:
    if config.batch_size is None:
        try:
            return automatic_rows(program, length)
        except ValueError as error:
            raise ConfigurationError(
                f"{BLOCK}.sequenceLength: {length} tokens do not fit: {error}; shorten the rows, or use more chips"
            ) from error
    if config.batch_size % program.devices:
        near = -(-config.batch_size // program.devices) * program.devices
        raise ConfigurationError(
            f"{BLOCK}.batchSize: {config.batch_size} rows do not divide over {program.devices} devices of a worker; "
            f"{near} do"
        )
    return config.batch_size
