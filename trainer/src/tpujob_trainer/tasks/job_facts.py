"""Answers a question of the command line about a job before it starts: its problems, warnings, figures and forecast.

    python -m tpujob_trainer.tasks.job_facts '{"trainer": {…}, …}'

The argument is a `tpujob_contract.job_facts.Question`; stdout gets one JSON object, the `Facts`.
"""

import dataclasses
import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

from tpujob_contract.batch_rows import DEFAULT_BATCH_TOKENS, DEFAULT_SEQUENCE_LENGTH
from tpujob_contract.job_facts import ExtractionForecast, Facts, Place, Question, TrainingFigures, TrainingForecast
from tpujob_trainer import data
from tpujob_trainer.config.resolve import resolve_model
from tpujob_trainer.config.schema import BLOCK, TrainerConfig, parse_config
from tpujob_trainer.data import inspection
from tpujob_trainer.model.weights.read_shape import with_shape_read
from tpujob_trainer.storage.remote import RETRYING
from tpujob_trainer.tasks import extraction_estimate
from tpujob_trainer.tasks.prerequisites import check_prerequisites
from tpujob_trainer.train.arithmetic import arithmetic
from tpujob_trainer.values import programs
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError
from tpujob_trainer.values.programs import answer, log_to_stderr
from tpujob_trainer.values.references import MissingModuleError

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
    shape = resolve_model(with_shape_read(config.model), tokenizer.vocab_size, "tpu")
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


REACH_SECONDS = 2.0
"""Limit for storage to answer."""
FORECAST_REACH_SECONDS = 15.0
"""The same, when a forecast needs the data."""


def facts_of(question: Question) -> Facts:
    """The facts about a job, as far as they can be seen from this machine.

    Raises:
        TrainerError: the block is wrong, or the error with which the run would end when it reads its data.
    """
    config = parse_config(question.trainer)
    found = _figures(config, question.place) if question.has_figures else Facts()
    RETRYING.limit_seconds = REACH_SECONDS
    problems, warnings = check_prerequisites(
        config,
        checkpoint_dir=question.checkpoint_dir,
        owner=question.owner,
        place=question.place,
        is_run=question.is_run,
        has_all_packages=question.has_all_packages,
    )
    found = dataclasses.replace(found, problems=problems, warnings=(*found.warnings, *warnings))
    if question.forecast_workers is None:
        return found
    RETRYING.limit_seconds = FORECAST_REACH_SECONDS
    return dataclasses.replace(found, forecast=_forecast(config, found.training, question.forecast_workers))


def _figures(config: TrainerConfig, place: Place) -> Facts:
    """The figures of a run or an extraction, or what is missing on this machine and may exist in pods.

    Raises:
        ConfigurationError: as `arithmetic` and `bounds`.
    """
    try:
        if config.extract is not None:
            return Facts(extraction=extraction_estimate.bounds(config, config.extract))
        return arithmetic(config, place)
    except NotFoundError as error:
        return Facts(unknown=str(error))  # of model.from, which nothing else here reads
    except MissingModuleError as error:
        return Facts(missing_module=str(error))


def _forecast(
    config: TrainerConfig, figures: TrainingFigures | None, workers: int
) -> TrainingForecast | ExtractionForecast:
    if config.extract is not None:
        return extraction_estimate.forecast(config, config.extract, workers=workers)
    if config.task != "pretrain":
        raise ConfigurationError(f"{BLOCK}.task: {config.task} has no forecast; pretrain and extract have one")
    steps, tokens = planned(config) if figures is None else (figures.steps, figures.tokens)
    return forecast(config, steps=steps, tokens=tokens)


def main() -> int:
    """Answers the question in the first argument; returns the exit code."""
    log_to_stderr(logging.CRITICAL)
    asked: Mapping[str, Any] = json.loads(sys.argv[1])
    question = Question(**{**asked, "place": Place(**asked["place"])})
    return answer(lambda: dataclasses.asdict(facts_of(question)))


if __name__ == "__main__":
    programs.end(main())
