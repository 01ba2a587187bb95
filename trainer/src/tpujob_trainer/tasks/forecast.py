"""Forecast of what a job reads and writes, from a sample of its rows: rows, tokens, bytes. No device is used.

    python -m tpujob_trainer.tasks.forecast '{"trainer": {…}, "workers": 32}'

Writes one JSON object to stdout; `tpujob check --data` starts it and shows the result as text.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import sys
from typing import Any

from tpujob_contract.batch_rows import DEFAULT_BATCH_TOKENS, DEFAULT_SEQUENCE_LENGTH
from tpujob_trainer import data
from tpujob_trainer.config.schema import BLOCK, TrainerConfig, parse_config
from tpujob_trainer.corpus.extract import forecast, units
from tpujob_trainer.corpus.extract.config import ExtractConfig
from tpujob_trainer.data import inspection
from tpujob_trainer.distributed.exit import programs
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.errors.programs import answer, log_to_stderr
from tpujob_trainer.model.weights.load import with_shape_read
from tpujob_trainer.storage.remote import RETRYING
from tpujob_trainer.tasks.batch.corpus_listing import UNIT_BYTES
from tpujob_trainer.tasks.extraction_bounds import forward_flops, kept_sites, shape_of, vector_bytes, weight_bytes

BYTES_PER_PARAMETER = 12
"""Of a checkpoint: a float32 weight and AdamW's two float32 moments; Lion and Adafactor need less."""

COMPRESSED = 0.924
"""Compression ratio of Zstandard, which Orbax uses, for normally distributed float32: only sign and exponent have less
than 8 bits of information per byte."""
UNCOUNTED_UNIT_BYTES = 1 << 20
"""Unit size for files whose rows are not counted before they are read: the bytes that are read at one place."""


def training(config: TrainerConfig, *, steps: int, tokens: int) -> dict[str, Any]:
    """The figures of a training run of `steps` steps and `tokens` tokens.

    Raises:
        TrainerError: the error that training would end with.
    """
    tokenizer = data.load_tokenizer(config.data)
    manifest = data.make_manifest(config.data)
    sampled = inspection.sample_rows(manifest, tokenizer, seed=config.seed, examples=0)
    num_bytes = int(manifest.unit_bytes.sum())
    size = inspection.size_of(manifest, sampled)
    in_epoch = size.tokens
    shape = with_shape_read(config.model).resolve(vocabulary=tokenizer.vocab_size, platform="tpu")
    checkpoint = round(shape.num_parameters * BYTES_PER_PARAMETER * COMPRESSED)
    kept = config.checkpoint.keep + config.checkpoint.keep_best
    if config.checkpoint.keep_every_steps:
        kept += steps // config.checkpoint.keep_every_steps
    return {
        "rows": size.rows,
        "is_exact": size.is_exact,
        "skipped": sampled.skipped,
        "rows_sampled": sampled.rows,
        "tokens_in_data": in_epoch,
        "passes": tokens / in_epoch if in_epoch else None,
        "read_bytes": round(num_bytes * tokens / in_epoch) if in_epoch else None,
        "parameters": shape.num_parameters,
        "vocabulary": tokenizer.vocab_size,
        "checkpoint_bytes": checkpoint,
        "checkpoints": kept,
        "output_bytes": checkpoint * kept,
        "scratch_bytes_per_host": 0,
    }


def extraction(config: TrainerConfig, extract: ExtractConfig, *, workers: int) -> dict[str, Any]:
    """The figures of an extraction.

    Raises:
        TrainerError: the error that a worker would end with.
    """
    tokenizer = data.load_tokenizer(config.data)
    shape = shape_of(config, tokenizer.vocab_size, inspection.REACH_SECONDS)
    sites = kept_sites(extract, shape)
    length = config.sequence_length or DEFAULT_SEQUENCE_LENGTH
    manifest = data.make_manifest(dataclasses.replace(config.data, unit_bytes=UNIT_BYTES))
    if manifest.num_rows is None:
        manifest = data.make_manifest(dataclasses.replace(config.data, unit_bytes=UNCOUNTED_UNIT_BYTES))
    sampled = forecast.sample(
        manifest,
        tokenizer,
        vocab_size=shape.vocab_size,
        longest=length,
        is_prompt=False,
        retry_seconds=config.data.retry_seconds,
    )
    rows = extract.rows if manifest.num_rows is None else min(manifest.num_rows, extract.rows or manifest.num_rows)
    if rows is None:
        rows = round(sampled.rows * int(manifest.unit_bytes.sum()) / max(1, sampled.bytes))
    vector = vector_bytes(extract, sites, shape)
    made = forecast.output(
        extract,
        sites,
        layers=shape.layers,
        width=shape.embed_dim,
        sampled=sampled,
        rows=rows,
        unit_rows=_unit_rows(config, extract, vector, sampled.mean_length, total=rows, workers=workers),
    )
    return {
        "rows": rows,
        "rows_used": made.rows,
        "rows_sampled": sampled.rows,
        "tokens": made.tokens,
        "value_bytes": made.value_bytes,
        "output_bytes": made.bytes,
        "output_bytes_per_worker": math.ceil(made.bytes / workers),
        "scratch_bytes_per_host": min(extract.scratch_bytes, math.ceil(made.bytes / workers)),
        "flops": made.tokens * forward_flops(shape, sites, length),
        "parameters": shape.num_parameters,
        "weight_bytes": weight_bytes(config, shape),
    }


def _unit_rows(
    config: TrainerConfig,
    extract: ExtractConfig,
    vector: int,
    mean_length: float | None,
    *,
    total: int,
    workers: int,
) -> int:
    if extract.unit_rows:
        return extract.unit_rows
    length = config.sequence_length or DEFAULT_SEQUENCE_LENGTH
    tokens = mean_length or length
    return units.rows_per_unit(
        row_bytes=round(vector * (tokens if extract.positions == "all" else 1)),
        shard_bytes=extract.shard_bytes,
        batch=config.batch_size or 32,
        filled=tokens / length,
        total_rows=total,
        workers=workers,
    )


def _planned(config: TrainerConfig) -> dict[str, int]:
    """Steps and tokens of a run whose model is not a preset."""
    length = config.sequence_length or DEFAULT_SEQUENCE_LENGTH
    batch = (config.batch_size or max(1, DEFAULT_BATCH_TOKENS // length)) * length
    steps = config.steps or -(-(config.tokens or 0) // batch)
    return {"steps": steps, "tokens": steps * batch}


def main() -> int:
    """Answers the request in the first argument; returns the exit code."""
    log_to_stderr(logging.ERROR)
    RETRYING.limit_seconds = inspection.REACH_SECONDS
    return answer(lambda: _found(**json.loads(sys.argv[1])))


def _found(trainer: dict[str, Any], workers: int, **planned: int) -> dict[str, Any]:
    config = parse_config(trainer)
    if config.extract is not None:
        return extraction(config, config.extract, workers=workers)
    if config.task != "pretrain":
        raise ConfigurationError(f"{BLOCK}.task: {config.task} has no forecast; pretrain and extract have one")
    return training(config, **(planned if "steps" in planned else _planned(config)))


if __name__ == "__main__":
    programs.end(main())
