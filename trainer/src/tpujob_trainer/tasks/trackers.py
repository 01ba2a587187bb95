"""The trackers of a run, from the configuration."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import jax

from tpujob_trainer import errors
from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.config.schema import BLOCK
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.telemetry.metrics import Metrics
from tpujob_trainer.telemetry.samples_file import SamplesFile
from tpujob_trainer.telemetry.trackers import Background, Tracker, Trackers

LIMIT_SECONDS = 60.0


def make_trackers(
    run: ResolvedConfig, *, directory: str | None, runtime: Runtime, metrics: Metrics, first_step: int
) -> Trackers:
    """The trackers that are configured, and samples.jsonl; nothing on any process but 0.

    Raises:
        ConfigurationError: a package is not installed on process 0, or there is no place for the files.
    """
    runtime.coordination.lead_decides("trackers", lambda: _check(run, directory), limit_seconds=LIMIT_SECONDS)
    if not runtime.is_lead:
        return Trackers()
    configured = run.trackers

    def lost(name: str) -> None:
        metrics.tracker_failures.labels(tracker=name).inc()

    made = []
    if directory and run.sample:
        made.append(Background("samples.jsonl", lambda: SamplesFile(directory), lost=lost))
    if configured and configured.tensorboard:
        folder = configured.tensorboard.directory or f"{directory}/tensorboard"

        def tensorboard() -> Tracker:
            from tpujob_trainer.telemetry.tensorboard import TensorBoard

            return TensorBoard(folder, first_step=first_step)

        made.append(Background("tensorboard", tensorboard, lost=lost))
    if configured and configured.wandb:
        block = configured.wandb

        def wandb() -> Tracker:
            from tpujob_trainer.telemetry.wandb import WandB

            return WandB(
                project=block.project,
                entity=block.entity,
                name=block.name,
                directory=directory,
                config=_described(run, runtime),
            )

        made.append(Background("wandb", wandb, lost=lost))
    for each in made:
        # Exported as 0 from the start: a series that begins with its first increment has no rate.
        metrics.tracker_failures.labels(tracker=each.name)
    return Trackers(made)


def _described(run: ResolvedConfig, runtime: Runtime) -> dict[str, Any]:
    """What people look for in a list of runs: the resolved configuration, how large the model is, and where it ran."""
    resolved: dict[str, Any] = json.loads(run.as_json())
    return {
        **resolved,
        "numParameters": run.model.num_parameters,
        "numDevices": jax.device_count(),
        "hosts": list(runtime.coordination.hosts),
    }


def _check(run: ResolvedConfig, directory: str | None) -> None:
    configured = run.trackers
    if configured is None:
        return
    for block, package in ((configured.tensorboard, "tensorboardX"), (configured.wandb, "wandb")):
        if block is not None and importlib.util.find_spec(package) is None:
            raise errors.ConfigurationError(
                f"{BLOCK}.trackers: the package {package} is not installed in this image; install it there "
                f"(pip install {package.lower()}), or leave the tracker out"
            )
    if configured.tensorboard and configured.tensorboard.directory is None and directory is None:
        raise errors.ConfigurationError(
            f"{BLOCK}.trackers.tensorboard.directory: required, since spec.checkpointDir is not set"
        )
