"""What the trainer says of a job before it starts: mistakes in data, tokenizer, directory and memory; its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpujob.errors import CommandError
from tpujob.questions import trainer_program
from tpujob.questions.trainer_program import Program
from tpujob_contract import ExitCode
from tpujob_resource.models.job import TpuTrainingJob


@dataclass(frozen=True)
class Prerequisites:
    """The result of the checks."""

    problems: tuple[str, ...]
    """Each of them would end the run."""
    exit_code: int
    """Of the first problem; 0 if there is none."""
    warnings: tuple[str, ...]
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Of the run or the extraction, by arithmetic; empty if they were not asked for."""

    def require(self) -> None:
        """Raises an error if there are problems.

        Raises:
            CommandError: there are, with a line for each.
        """
        if self.problems:
            raise CommandError(*self.problems, exit_code=self.exit_code)


def look(
    job: TpuTrainingJob,
    *,
    checkpoint_dir: str | None,
    is_run: bool,
    on_chips: bool = False,
    processes_here: int | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
    with_figures: bool = False,
) -> Prerequisites:
    """The problems and warnings of a job with a trainer block, as far as they can be seen from this machine.

    Args:
        job: The job.
        checkpoint_dir: Its directory for checkpoints, if it has one.
        is_run: Whether it runs on this machine. If not, missing files are warnings for TPU jobs: their pods may differ.
        on_chips: Whether it runs on this machine's TPU chips.
        processes_here: How many of its processes run on this machine; None: all.
        environ: Of its processes; None: that of the command line.
        directory: Where its processes run; None: where the command line does.
        with_figures: Whether to calculate its figures, too.

    Raises:
        CommandError: with the trainer's line and exit code.
    """
    if job.spec.trainer is None:
        return Prerequisites((), 0, ())
    accelerator, is_tpu = job.accelerator, job.accelerator.is_tpu
    devices = job.hosts * accelerator.devices_per_host
    figures = {
        "devices": devices,
        "slices": job.slices,
        "platform": "tpu" if is_tpu else "cpu",
        "generation": accelerator.generation if is_tpu else None,
    }
    is_in_pods = is_tpu and not is_run
    found = trainer_program.ask(
        Program.PREREQUISITES,
        {
            "trainer": job.spec.trainer,
            "checkpointDir": None if is_in_pods else checkpoint_dir,
            "owner": f"{job.metadata.namespace or 'default'}/{job.metadata.name}",
            "place": {
                "devices": devices,
                "slices": job.slices,
                "platform": "tpu" if is_tpu and (on_chips or not is_run) else "cpu",
                "devicesHere": (job.hosts if processes_here is None else processes_here) * accelerator.devices_per_host,
            },
            "isRun": is_run,
            "hasAllPackages": job.spec.packages is None,
            "figures": figures if with_figures else None,
        },
        environ=environ,
        directory=directory,
    )
    return _sorted(found, is_in_pods=is_in_pods)


def _sorted(found: Mapping[str, Any], *, is_in_pods: bool) -> Prerequisites:
    """Problems and warnings; for a job in pods, what this machine lacks is a warning: the pods may have it."""
    problems, warnings = [], list(found["warnings"])
    for each in found["problems"]:
        if is_in_pods and each["exit_code"] == ExitCode.NOT_FOUND:
            warnings.append(f"{each['message']}; it is not on this machine, and pods need it")
        else:
            problems.append(each)
    return Prerequisites(
        tuple(each["message"] for each in problems),
        problems[0]["exit_code"] if problems else 0,
        tuple(warnings),
        found.get("figures", {}),
    )
