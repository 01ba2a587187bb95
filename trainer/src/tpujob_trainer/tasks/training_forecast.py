"""Forecast of what a training run reads and writes, from a sample of its rows. No device is used."""

from __future__ import annotations

from tpujob_contract.batch_rows import DEFAULT_BATCH_TOKENS, DEFAULT_SEQUENCE_LENGTH
from tpujob_contract.job_facts import TrainingForecast
from tpujob_trainer import data
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.data import inspection
from tpujob_trainer.model.weights.read_shape import with_shape_read

BYTES_PER_PARAMETER = 12
"""Of a checkpoint: a float32 weight and AdamW's two float32 moments; Lion and Adafactor need less."""

COMPRESSED = 0.924
"""Compression ratio of Zstandard, which Orbax uses, for normally distributed float32: only sign and exponent have less
than 8 bits of information per byte."""


def forecast(config: TrainerConfig, *, steps: int, tokens: int) -> TrainingForecast:
    """The forecast of a run of `steps` steps and `tokens` tokens.

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
    return TrainingForecast(
        rows=size.rows,
        is_exact=size.is_exact,
        skipped=dict(sampled.skipped),
        rows_sampled=sampled.rows,
        tokens_in_data=in_epoch,
        passes=tokens / in_epoch if in_epoch else None,
        read_bytes=round(num_bytes * tokens / in_epoch) if in_epoch else None,
        parameters=shape.num_parameters,
        vocabulary=tokenizer.vocab_size,
        checkpoint_bytes=checkpoint,
        checkpoints=kept,
        output_bytes=checkpoint * kept,
        scratch_bytes_per_host=0,
    )


def planned(config: TrainerConfig) -> tuple[int, int]:
    """Steps and tokens of a run whose model's shape is not known."""
    length = config.sequence_length or DEFAULT_SEQUENCE_LENGTH
    batch = (config.batch_size or max(1, DEFAULT_BATCH_TOKENS // length)) * length
    steps = config.steps or -(-(config.tokens or 0) // batch)
    return steps, steps * batch
