"""What the trainer says of a job before it starts: mistakes in data, tokenizer, directory and memory; its figures."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from tpujob.job.questions import trainer_program
from tpujob.job.questions.trainer_program import Program
from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode
from tpujob_contract.job_facts import Facts, Place, Question
from tpujob_resource.models.job import TpuTrainingJob


def ask_trainer(
    job: TpuTrainingJob,
    *,
    checkpoint_dir: str | None,
    is_run: bool,
    on_chips: bool = False,
    processes_here: int | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
    has_figures: bool = False,
    has_forecast: bool = False,
) -> Facts:
    """The facts about a job, as far as they can be seen from this machine; none without a trainer block.

    Args:
        job: The job.
        checkpoint_dir: Its directory for checkpoints, if it has one.
        is_run: Whether it runs on this machine. If not, missing files are warnings for TPU jobs: their pods may differ.
        on_chips: Whether it runs on this machine's TPU chips.
        processes_here: How many of its processes run on this machine; None: all.
        environ: Of its processes; None: that of the command line.
        directory: Where its processes run; None: where the command line does.
        has_figures: Whether to calculate its figures.
        has_forecast: Whether to forecast from some rows of its data.

    Raises:
        CommandError: with the trainer's line and exit code.
    """
    if job.spec.trainer is None:
        return Facts()
    accelerator, is_tpu = job.accelerator, job.accelerator.is_tpu
    is_in_pods = is_tpu and not is_run
    place = Place(
        devices=job.hosts * accelerator.devices_per_host,
        slices=job.slices,
        platform="tpu" if is_tpu and (on_chips or not is_run) else "cpu",
        devices_here=(job.hosts if processes_here is None else processes_here) * accelerator.devices_per_host,
        generation=accelerator.generation if is_tpu else None,
    )
    question = Question(
        trainer=job.spec.trainer,
        checkpoint_dir=None if is_in_pods else checkpoint_dir,
        owner=f"{job.metadata.namespace or 'default'}/{job.metadata.name}",
        place=place,
        is_run=is_run,
        has_all_packages=job.spec.packages is None,
        has_figures=has_figures,
        forecast_workers=(job.spec.workers or 1) if has_forecast else None,
    )
    answer = trainer_program.ask(Program.JOB_FACTS, dataclasses.asdict(question), environ=environ, directory=directory)
    facts = TypeAdapter(Facts).validate_python(answer)
    return _of_pods(facts) if is_in_pods else facts


def require_no_problem(facts: Facts) -> None:
    """Raises an error with a line for each problem, if there are any.

    Raises:
        CommandError: there are.
    """
    if facts.problems:
        raise CommandError(*(each.message for each in facts.problems), exit_code=facts.problems[0].exit_code)


def _of_pods(facts: Facts) -> Facts:
    """The facts with a warning in place of each problem that something is not here: the pods may have it."""
    missing = [each for each in facts.problems if each.exit_code == ExitCode.NOT_FOUND]
    warnings = (f"{each.message}; it is not on this machine, and pods need it" for each in missing)
    return dataclasses.replace(
        facts,
        problems=tuple(each for each in facts.problems if each not in missing),
        warnings=(*facts.warnings, *warnings),
    )
