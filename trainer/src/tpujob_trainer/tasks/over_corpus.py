"""Independent workers over a corpus: what one of them does from start to end, whatever its task computes.

- The first worker lists the corpus and cuts the units; all others read what it wrote.
- Nothing is computed before the directory is known to be this job's, with the same task, model, corpus and image.
- A worker ends with 0 when every unit is done, whoever has done it: then the job is complete.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from tpujob_contract import DistributedProcess, IndependentWorker, LocalProcess, Process
from tpujob_trainer import data
from tpujob_trainer.checkpoint import ownership
from tpujob_trainer.checkpoint.fingerprint import Fingerprinter
from tpujob_trainer.config.schema import BLOCK, TrainerConfig
from tpujob_trainer.corpus.extract import batches, description, units
from tpujob_trainer.corpus.extract.batch_size import automatic_rows
from tpujob_trainer.corpus.extract.batched import BatchedWork
from tpujob_trainer.corpus.extract.program import Program
from tpujob_trainer.corpus.extract.rows import tokens_of
from tpujob_trainer.corpus.workers import setup
from tpujob_trainer.corpus.workers.config import UnitsConfig
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.distributed.versions import versions
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.mesh import build_mesh
from tpujob_trainer.model.shape import ModelShape, described
from tpujob_trainer.model.weights.load import load_weights, read_shape
from tpujob_trainer.storage import Bucket, is_local, open_bucket
from tpujob_trainer.tasks import embed, extract, generate, score
from tpujob_trainer.tasks.corpus_task import CorpusTask
from tpujob_trainer.tasks.staged_weights import staged
from tpujob_trainer.tasks.worker import Worker

logger = logging.getLogger(__name__)

DEFAULT_SEQUENCE_LENGTH = 2048
LISTING_SECONDS = 900.0
"""Workers that start so long after a listing, give or take what clocks differ, make one of their own."""
UNIT_BYTES = (1 << 31) - 1
"""For the first cut, by row groups."""

TASKS: dict[str, Callable[[TrainerConfig, ModelShape, data.Tokenizer, int], CorpusTask]] = {
    "extract": extract.task_of,
    "score": score.task_of,
    "embed": embed.task_of,
    "generate": generate.task_of,
}


def run(
    process: Process,
    config: TrainerConfig,
    stop: StopRequest,
    *,
    in_pod: bool = False,
) -> int:
    """Works until every unit is done; the exit code of this process.

    Raises:
        TrainerError: of the class whose exit code says why.
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
    tokenizer = data.load_tokenizer(config.data)
    objects = open_bucket(worker.directory)
    source = _source(config, objects, worker, process)
    shape = _shape(source, tokenizer.vocab_size)
    length = config.sequence_length or DEFAULT_SEQUENCE_LENGTH
    task = TASKS[config.task](config, shape, tokenizer, length)
    manifest = _manifest(objects, worker, process, config, task)
    described = _described(config, task, shape, length, tokenizer, manifest)
    description.require_same(objects, described, field=task.field, accept_other_image=task.units.accept_other_image)
    worker.report.enter("restoring")
    model = Model(shape, build_mesh(slices=1))
    weights = _weights(source, model)
    description.require_same_weights(objects, _fingerprint(weights), config.model.from_ or f"seed {config.seed}")
    program = task.make(model, weights)
    worker.report.enter("compiling")
    batch = _batch(config, program, length)
    first = units.first_samples(manifest)
    work = BatchedWork(
        task.units,
        tokens_of(
            manifest,
            tokenizer,
            vocab_size=shape.vocab_size,
            longest=length,
            is_cut=task.is_cut,
            retry_seconds=config.data.retry_seconds,
        ),
        program,
        buckets=batches.bucket_lengths(length, task.units.buckets),
        batch=batch,
        first_sample=lambda unit: int(first[unit]),
        arrange=task.arrange,
        on_batch=worker.report.tick,
    )
    work.compile()
    unit_rows = None if manifest.num_rows is None else manifest.unit_count
    return worker.work(work, manifest.num_units, task.units, task.field, unit_rows)


def _source(config: TrainerConfig, objects: Bucket, worker: Worker, process: Process) -> TrainerConfig:
    """The configuration with the place that weights are read from."""
    if config.model.from_ is None:
        return config
    place = staged(config.model.from_, objects, worker.name, process, worker.report.tick)
    return dataclasses.replace(config, model=dataclasses.replace(config.model, from_=place))


def _manifest(
    objects: Bucket, worker: Worker, process: Process, config: TrainerConfig, task: CorpusTask
) -> data.Manifest:
    workers = process.workers if isinstance(process, IndependentWorker) else 1
    found = _listed_once(
        objects, worker, process, task.units, config.data, lambda: _corpus(worker.directory, config, task, workers)
    )
    manifest = data.read_manifest(worker.directory, config.data, roots=found["roots"])
    assert manifest is not None
    return manifest


def _listed_once(
    objects: Bucket,
    worker: Worker,
    process: Process,
    block: UnitsConfig,
    source: data.DataConfig,
    list_corpus: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """What `list_corpus` found, in this worker or in one that started lately with the same `data` block.

    An older listing may be that of a job of the same name that was deleted: the corpus is looked at again.
    """
    text = json.dumps(dataclasses.asdict(source), sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    started = secrets.token_hex(4)
    if not isinstance(process, LocalProcess):
        started = f"{process.incarnation}.{process.attempt}"
    for number in itertools.count():
        made = setup.once(
            objects,
            worker.name,
            f"corpus-{started}-{digest}-{number}",
            lambda: json.dumps({"time": time.time(), **list_corpus()}).encode(),
            lapse_seconds=block.lease_seconds,
            renew_seconds=block.lease_seconds / 4,
        )
        found: dict[str, Any] = json.loads(made)
        if time.time() - found["time"] < LISTING_SECONDS:
            return found
    raise AssertionError("a listing of this worker's own is never old")


def _shape(config: TrainerConfig, vocabulary: int) -> ModelShape:
    platform = jax.default_backend()
    if config.model.from_ is not None:
        dtype = config.model.compute_dtype or ("float32" if platform == "cpu" else "bfloat16")
        ignored = config.model.ignore_config_keys
        return read_shape(config.model.from_, remat="none", compute_dtype=dtype, ignored=ignored)
    try:
        return config.model.resolve(vocabulary=vocabulary, platform=platform)
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.model.{error}") from error


def _corpus(directory: str, config: TrainerConfig, task: CorpusTask, workers: int) -> dict[str, Any]:
    """Makes the manifest, or finds that the corpus is what it was; what the other workers need to read it."""
    manifest = data.read_manifest(directory, config.data)
    if manifest is not None:
        data.verify_unchanged(manifest, config.data)
    else:
        limit = task.units.rows
        whole = data.make_manifest(dataclasses.replace(config.data, unit_bytes=UNIT_BYTES))
        total = whole.num_rows if whole.num_rows is None or limit is None else min(whole.num_rows, limit)
        rows = task.units.unit_rows or batches.rows_per_unit(
            row_bytes=task.row_bytes,
            shard_bytes=task.units.shard_bytes,
            batch=config.batch_size or 32,
            total_rows=total,
            workers=workers,
        )
        if whole.num_rows is None and limit is None:
            whole = data.make_manifest(dataclasses.replace(config.data, unit_bytes=rows * units.BYTES_PER_ROW))
        manifest = units.cut(whole, rows, limit, field=task.field)
        data.write_manifest(manifest, directory)
    return {"roots": [source.root for source in manifest.sources], "units": manifest.num_units}


def _described(
    config: TrainerConfig,
    task: CorpusTask,
    shape: ModelShape,
    length: int,
    tokenizer: data.Tokenizer,
    manifest: data.Manifest,
) -> dict[str, Any]:
    """All that the values depend on."""
    return {
        "corpus": manifest.fingerprint,
        "units": manifest.num_units,
        "rows": manifest.num_rows,
        "sources": [source.root for source in manifest.sources],
        description.TASK: task.name,
        f"{BLOCK}.model": described(shape),
        description.FROM: config.model.from_,
        f"{BLOCK}.seed": config.seed,
        f"{BLOCK}.data.tokenizer": tokenizer.fingerprint,
        f"{BLOCK}.sequenceLength": length,
        **{f"{task.field}.{key}": value for key, value in task.described.items()},
        f"{task.field}.format": task.units.format,
        **_described_columns(manifest),
        description.IMAGE: description.image(versions()),
    }


def _described_columns(manifest: data.Manifest) -> dict[str, Any]:
    """Nothing for plain text and tokens, of which earlier releases made the same ids."""
    described = {}
    for number, source in enumerate(manifest.sources):
        is_plain = source.column.kind in ("text", "tokens") and source.column.special_tokens != "text"
        if not is_plain:
            part = f"mixture[{number}]." if number else ""  # extractions that go on have the first one's key
            described[f"{BLOCK}.data.{part}specialTokens"] = source.column.special_tokens
    return described


def _fingerprint(weights: Weights) -> str:
    """32 hexadecimal digits of all weights, wherever they were read from and however they lie on devices."""
    by_leaf = Fingerprinter()(weights).by_leaf
    return hashlib.blake2b(json.dumps(by_leaf, sort_keys=True).encode(), digest_size=16).hexdigest()


def _weights(config: TrainerConfig, model: Model) -> Weights:
    """In the type of computation, which halves them."""

    def cast(weights: Weights) -> Weights:
        return jax.tree.map(lambda leaf: leaf.astype(model.shape.compute_dtype), weights)

    if config.model.from_ is not None:
        weights = load_weights(config.model.from_, model.shape, model.abstract_weights, model.shardings)
        return jax.jit(cast, out_shardings=model.shardings, donate_argnums=0)(weights)
    logger.warning("%s.model.from is not set: the weights are fresh and random", BLOCK)
    return jax.jit(lambda: cast(model.init(config.seed)), out_shardings=model.shardings)()


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
