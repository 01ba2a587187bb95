"""The resources and figures of a job before it takes any machine: `tpujob check`."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob.job.questions.compiled import compile_job
from tpujob.job.questions.estimates import Estimates, ExtractionOnChips, TrainingOnDevices, estimate, read_prices
from tpujob.job.questions.trainer_facts import ask_trainer
from tpujob.job.yaml_text import read_value
from tpujob.output.errors import CommandError
from tpujob_contract.job_facts import Facts
from tpujob_resource.jobset.multislice_network import compiler_flags
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.rules.maxtext import MaxTextRun, config_file, run_of, with_config_file
from tpujob_resource.rules.warnings import job_warnings


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """The facts about a job; None stands for what it does not have, or was not asked for."""

    accelerator: str
    topology: str
    slices: int
    hosts: int
    chips: int
    machine_type: str | None
    note: str | None
    """About the accelerator's name."""
    libtpu_flags: tuple[str, ...]
    warnings: tuple[str, ...]
    trainer: Facts
    """The trainer's own facts; the warnings above include theirs."""
    effective: Mapping[str, Any]
    """The specification with defaults and derived values."""
    maxtext: MaxTextRun | None
    unknown: str | None
    """Why the figures are not known."""
    estimates: Estimates
    compiled: dict[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        """The facts as JSON values, without groups that the job does not have."""
        given, trainer = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}, self.trainer
        maxtext = None if self.maxtext is None else {**dataclasses.asdict(self.maxtext), "tokens": self.maxtext.tokens}
        groups = {
            "maxtext": maxtext,
            "unknown": self.unknown,
            "extraction": _merged(trainer.extraction, self.estimates.extraction),
            "trainer": _merged(trainer.training, self.estimates.training),
            "forecast": _merged(trainer.forecast, self.estimates.forecast),
            "cost": _merged(self.estimates.cost),
            "compiled": self.compiled,
        }
        facts = {name: value for name, value in given.items() if name in _ALWAYS} | {
            "problems": [each.message for each in trainer.problems],
            **{name: value for name, value in groups.items() if value is not None},
        }
        as_json: dict[str, Any] = json.loads(json.dumps(facts))  # tuples become lists, as YAML wants them
        return as_json


_ALWAYS = ("accelerator", "topology", "slices", "hosts", "chips", "machine_type", "note", "libtpu_flags", "warnings")


def _merged(figures: Any, on_machines: TrainingOnDevices | ExtractionOnChips | None = None) -> dict[str, Any] | None:
    """Figures as JSON values, with those of the machines on the same level; None: there are none."""
    if figures is None:
        return None
    values = dataclasses.asdict(figures)
    for name, value in ({} if on_machines is None else dataclasses.asdict(on_machines)).items():
        values |= {} if value is None else value if isinstance(value, dict) else {name: value}
    return values


def check_job(
    job: TpuTrainingJob,
    *,
    bandwidth: float,
    environ: Mapping[str, str] | None = None,
    prices: Path | None = None,
    folder: Path | None = None,
    has_forecast: bool = False,
    is_compiled: bool = False,
    suggest: bool = False,
) -> JobFacts:
    """The facts about a job.

    Args:
        job: The job.
        bandwidth: Bytes per second that a host of an extraction reads or writes.
        environ: With the job's code on PYTHONPATH; None: that of the command line.
        prices: File with a price table, to estimate the cost.
        folder: With the job's code, to read MaxText's configuration file; None: the current folder.
        has_forecast: Whether to forecast from some rows of the data.
        is_compiled: Whether to compile the step.
        suggest: Whether to compile other layouts, too.

    Raises:
        CommandError: with the trainer's line and exit code; or the prices cannot be read.
    """
    table = None if prices is None else read_prices(prices)
    if has_forecast and job.spec.trainer is None:
        raise CommandError("--data: the job has no trainer block, so what it reads is not known; leave --data out")
    found = ask_trainer(
        job,
        checkpoint_dir=job.spec.checkpoint_dir,
        is_run=False,
        environ=environ,
        has_figures=job.spec.workers is None or (job.spec.trainer or {}).get("task") == "extract",
        has_forecast=has_forecast,
    )
    unknown = _unknown(job, found)
    estimates = estimate(job, found, bandwidth=bandwidth, prices=table)
    vocabulary = found.training.vocabulary if found.training else 2
    is_compiled = is_compiled or suggest
    compiled = compile_job(job, vocabulary=vocabulary, suggest=suggest, environ=environ) if is_compiled else None
    accelerator, with_file = job.accelerator, _with_config_file(job, folder or Path())
    return JobFacts(
        accelerator=job.spec.accelerator,
        topology=accelerator.topology,
        slices=job.slices,
        hosts=job.hosts,
        chips=job.hosts * accelerator.chips_per_host,
        machine_type=accelerator.machine_type,
        note=accelerator.note,
        libtpu_flags=tuple(map(str, compiler_flags(job))),
        warnings=(*job_warnings(with_file), *_unread(with_file), *found.warnings),
        trainer=found,
        effective=_effective(job, found),
        maxtext=run_of(with_file),
        unknown=unknown,
        estimates=estimates,
        compiled=compiled,
    )


def _with_config_file(job: TpuTrainingJob, folder: Path) -> TpuTrainingJob:
    """The job with what MaxText's configuration file sets, if it is in the folder."""
    file = config_file(job) if job.spec.framework == "maxtext" else None
    try:
        values = read_value((folder / file).read_text(encoding="utf-8")) if file is not None else None
    except (OSError, ValueError):
        return job
    return with_config_file(job, values) if isinstance(values, Mapping) else job


def _unread(job: TpuTrainingJob) -> Iterator[str]:
    if job.spec.framework == "maxtext" and (file := config_file(job)) is not None:
        yield f"spec.command: {file} was not read here, and what it sets is in no sum; --code FOLDER has it read"


def _effective(job: TpuTrainingJob, found: Facts) -> dict[str, Any]:
    spec = job.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return spec if found.effective is None else spec | {"trainer": found.effective}


def _unknown(job: TpuTrainingJob, found: Facts) -> str | None:
    """Why the figures of a job are not known; None: they are, or it has none.

    Raises:
        CommandError: the module of its model must be on this machine, and is not.
    """
    model = (job.spec.trainer or {}).get("model") or {}
    if found.missing_module is not None:
        if job.spec.code is None and job.spec.image is None:
            raise CommandError(found.missing_module)
        where = "spec.code" if job.spec.code is not None else "spec.image"
        custom = f"spec.trainer.model.custom: what {model['custom']} comes to is known where its module is"
        return f"{custom}, in {where}; --code FOLDER checks it here"
    if "from" not in model or found.training is not None or found.extraction is not None:
        return None
    unread = f"spec.trainer.model.from: what {model['from']} comes to is known when its config.json is read"
    if found.unknown is None:
        return unread
    return f"{unread}; it was not read here: {found.unknown.removeprefix('spec.trainer.model.from: ')}"
