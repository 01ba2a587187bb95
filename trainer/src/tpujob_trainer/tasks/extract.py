"""Extraction: what one independent worker does from start to end.

- The first worker lists the corpus and cuts the units; all others read what it wrote.
- Nothing is computed before the directory is known to be this job's, with the same model, corpus and image.
- A worker ends with 0 when every unit is done, whoever has done it: then the job is complete.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import secrets
from pathlib import Path
from typing import Any

import jax

from tpujob_contract import DistributedProcess, IndependentWorker, LocalProcess, Process
from tpujob_trainer import data
from tpujob_trainer.checkpoint import ownership
from tpujob_trainer.config.schema import BLOCK, TrainerConfig
from tpujob_trainer.data.config import Column
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.data.manifest.retrying_reader import RetryingReader
from tpujob_trainer.data.text import columns
from tpujob_trainer.data.text.columns import Kind
from tpujob_trainer.data.text.documents import kind_of
from tpujob_trainer.distributed.versions import CODE, INSTALLED, versions
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.exit.stop_request import StopRequest
from tpujob_trainer.extract import batches, description, units
from tpujob_trainer.extract.activations import Activations, Tokens
from tpujob_trainer.extract.batch_size import automatic_rows
from tpujob_trainer.extract.config import ExtractConfig
from tpujob_trainer.extract.forward import Forward
from tpujob_trainer.extract.layers import Site, column_of, sites_of
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.mesh import build_mesh
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.storage import is_local, open_bucket
from tpujob_trainer.tasks.worker import Worker
from tpujob_trainer.weights.load import load_weights, read_shape
from tpujob_trainer.workers import setup

logger = logging.getLogger(__name__)

DEFAULT_SEQUENCE_LENGTH = 2048
UNIT_BYTES = (1 << 31) - 1
"""For the first cut, by row groups."""


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
    assert config.extract is not None
    directory = process.checkpoint_dir
    if not directory:
        raise ConfigurationError("spec.checkpointDir: required for task: extract, which writes its files there")
    if isinstance(process, DistributedProcess) and process.num_processes > 1:
        raise ConfigurationError(
            f"{BLOCK}.task: extract is for independent workers, and this job has {process.num_processes} processes of "
            "one runtime; set spec.workers, and an accelerator of one host"
        )
    if is_local(directory):
        directory = str(Path(directory).absolute())
        Path(directory).mkdir(parents=True, exist_ok=True)
    worker = Worker.begin(process, config, stop, directory, in_pod=in_pod)
    ownership.own(open_bucket(directory), worker.owner, config.checkpoint.adopt)
    return _extract(worker, process, config, config.extract, stop)


def _extract(
    worker: Worker,
    process: Process,
    config: TrainerConfig,
    extract: ExtractConfig,
    stop: StopRequest,
) -> int:
    tokenizer = data.load_tokenizer(config.data)
    shape = _shape(config, tokenizer.vocab_size)
    sites = _sites(extract, shape)
    length = config.sequence_length or DEFAULT_SEQUENCE_LENGTH
    workers = process.workers if isinstance(process, IndependentWorker) else 1
    objects = open_bucket(worker.directory)
    started = (
        f"{process.incarnation}.{process.attempt}" if not isinstance(process, LocalProcess) else secrets.token_hex(4)
    )
    found = setup.once(
        objects,
        worker.name,
        f"corpus-{started}",
        lambda: _corpus(worker.directory, config, extract, sites, shape, length, workers),
        lapse_seconds=extract.lease_seconds,
        renew_seconds=extract.lease_seconds / 4,
    )
    manifest = data.read_manifest(worker.directory, config.data, roots=json.loads(found)["roots"])
    assert manifest is not None
    description.require_same(objects, _described(config, extract, sites, shape, length, tokenizer, manifest))
    worker.report.enter("restoring")
    forward = _forward(config, extract, shape, sites)
    worker.report.enter("compiling")
    batch = _batch(config, forward, length)
    reader = RetryingReader(UnitReader(manifest), config.data.retry_seconds)
    column = manifest.sources[0].column
    kind = _kind(column, tokenizer, shape)
    first = units.first_samples(manifest)
    work = Activations(
        extract,
        Tokens(reader, tokenizer, kind, is_text=column.kind != "tokens", longest=length),
        forward,
        buckets=batches.bucket_lengths(length, extract.buckets),
        batch=batch,
        first_sample=lambda unit: int(first[unit]),
        on_batch=worker.report.tick,
    )
    work.compile()
    return worker.work(work, manifest.num_units, extract)


def _shape(config: TrainerConfig, vocabulary: int) -> ModelShape:
    platform = jax.default_backend()
    if config.model.from_ is not None:
        dtype = config.model.compute_dtype or ("float32" if platform == "cpu" else "bfloat16")
        return read_shape(config.model.from_, remat="none", compute_dtype=dtype)
    try:
        return config.model.resolve(vocabulary=vocabulary, platform=platform)
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.model.{error}") from error


def _kind(column: Column, tokenizer: data.Tokenizer, shape: ModelShape) -> Kind:
    """How rows become tokens that the model has embeddings for."""
    if column.kind == "tokens":
        return functools.partial(columns.tokens, vocab_size=shape.vocab_size)
    if tokenizer.vocab_size > shape.vocab_size:
        raise ConfigurationError(
            f"{BLOCK}.data.tokenizer: has {tokenizer.vocab_size} ids, and the model has embeddings for "
            f"{shape.vocab_size}; name the model's own tokenizer"
        )
    return kind_of(column, tokenizer)


def _sites(extract: ExtractConfig, shape: ModelShape) -> tuple[Site, ...]:
    try:
        return sites_of(extract.layers, extract.keep, shape.layers)
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.extract.{error}") from error


def _corpus(
    directory: str,
    config: TrainerConfig,
    extract: ExtractConfig,
    sites: tuple[Site, ...],
    shape: ModelShape,
    length: int,
    workers: int,
) -> bytes:
    """Makes the manifest, or finds that the corpus is what it was; what the other workers need to read it."""
    manifest = data.read_manifest(directory, config.data)
    if manifest is not None:
        data.verify_unchanged(manifest, config.data)
    else:
        whole = data.make_manifest(dataclasses.replace(config.data, unit_bytes=UNIT_BYTES))
        total = whole.num_rows if whole.num_rows is None or extract.rows is None else min(whole.num_rows, extract.rows)
        rows = extract.unit_rows or batches.rows_per_unit(
            row_bytes=_row_bytes(extract, sites, shape, length),
            shard_bytes=extract.shard_bytes,
            batch=config.batch_size or 32,
            total_rows=total,
            workers=workers,
        )
        if whole.num_rows is None and extract.rows is None:
            whole = data.make_manifest(dataclasses.replace(config.data, unit_bytes=rows * units.BYTES_PER_ROW))
        manifest = units.cut(whole, rows, extract.rows)
        data.write_manifest(manifest, directory)
    return json.dumps({"roots": [source.root for source in manifest.sources], "units": manifest.num_units}).encode()


def _row_bytes(extract: ExtractConfig, sites: tuple[Site, ...], shape: ModelShape, length: int) -> int:
    """Of the values of a row of full length."""
    width = {"float16": 2, "bfloat16": 2, "float32": 4, "int8": 1}[extract.dtype]
    return len(sites) * shape.embed_dim * width * (length if extract.positions == "all" else 1)


def _described(
    config: TrainerConfig,
    extract: ExtractConfig,
    sites: tuple[Site, ...],
    shape: ModelShape,
    length: int,
    tokenizer: data.Tokenizer,
    manifest: data.Manifest,
) -> dict[str, Any]:
    """All that the values depend on."""
    image = {name: version for name, version in versions().items() if name != INSTALLED}
    return {
        "corpus": manifest.fingerprint,
        "units": manifest.num_units,
        "rows": manifest.num_rows,
        "sources": [source.root for source in manifest.sources],
        f"{BLOCK}.model": dataclasses.asdict(shape),
        f"{BLOCK}.model.from": config.model.from_,
        f"{BLOCK}.seed": config.seed,
        f"{BLOCK}.data.tokenizer": tokenizer.fingerprint,
        f"{BLOCK}.sequenceLength": length,
        f"{BLOCK}.extract.layers": [column_of(site, shape.layers) for site in sites],
        f"{BLOCK}.extract.positions": extract.positions,
        f"{BLOCK}.extract.dtype": extract.dtype,
        f"{BLOCK}.extract.format": extract.format,
        "image": {name: version for name, version in image.items() if name in ("jax", "jaxlib", "libtpu", CODE)},
    }


def _forward(config: TrainerConfig, extract: ExtractConfig, shape: ModelShape, sites: tuple[Site, ...]) -> Forward:
    model = Model(shape, build_mesh(slices=1))
    return Forward(model, _weights(config, model), sites, positions=extract.positions, dtype=extract.dtype)


def _weights(config: TrainerConfig, model: Model) -> Weights:
    """In the type of computation, which halves them."""

    def cast(weights: Weights) -> Weights:
        return jax.tree.map(lambda leaf: leaf.astype(model.shape.compute_dtype), weights)

    if config.model.from_ is not None:
        weights = load_weights(config.model.from_, model.shape, model.abstract_weights, model.shardings)
        return jax.jit(cast, out_shardings=model.shardings, donate_argnums=0)(weights)
    logger.warning("%s.model.from is not set: these are the activations of fresh random weights", BLOCK)
    return jax.jit(lambda: cast(model.init(config.seed)), out_shardings=model.shardings)()


def _batch(config: TrainerConfig, forward: Forward, length: int) -> int:
    if config.batch_size is None:
        try:
            return automatic_rows(forward, length)
        except ValueError as error:
            raise ConfigurationError(
                f"{BLOCK}.sequenceLength: {length} tokens do not fit: {error}; shorten the rows, or use more chips"
            ) from error
    if config.batch_size % forward.devices:
        near = -(-config.batch_size // forward.devices) * forward.devices
        raise ConfigurationError(
            f"{BLOCK}.batchSize: {config.batch_size} rows do not divide over {forward.devices} devices of a worker; "
            f"{near} do"
        )
    return config.batch_size
