"""Answers a question of the command line about a job before it starts: its problems, warnings, figures and forecast.

    python -m tpujob_trainer.tasks.job_facts '{"trainer": {…}, …}'

The argument is a `tpujob_contract.job_facts.Question`; stdout gets one JSON object, the `Facts`.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

from tpujob_contract.job_facts import ExtractionForecast, Facts, Place, Question, TrainingFigures, TrainingForecast
from tpujob_trainer.config.schema import BLOCK, TrainerConfig, parse_config
from tpujob_trainer.errors import ConfigurationError, NotFoundError, programs
from tpujob_trainer.errors.programs import answer, log_to_stderr
from tpujob_trainer.parsing.references import MissingModuleError
from tpujob_trainer.storage.remote import RETRYING
from tpujob_trainer.tasks import extraction_estimate, training_forecast
from tpujob_trainer.tasks.prerequisites import check_prerequisites
from tpujob_trainer.train.arithmetic import arithmetic

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
    steps, tokens = training_forecast.planned(config) if figures is None else (figures.steps, figures.tokens)
    return training_forecast.forecast(config, steps=steps, tokens=tokens)


def main() -> int:
    """Answers the question in the first argument; returns the exit code."""
    log_to_stderr(logging.CRITICAL)
    asked: Mapping[str, Any] = json.loads(sys.argv[1])
    question = Question(**{**asked, "place": Place(**asked["place"])})
    return answer(lambda: dataclasses.asdict(facts_of(question)))


if __name__ == "__main__":
    programs.end(main())
