"""The trackers of a run: one row for each experiment tracker, and how the configured ones are opened.

A tracker is added by its block in `config.schema.TrackersConfig`, its class in `telemetry/`, and a row here.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
from collections.abc import Callable
from typing import Any

import jax

from tpujob_trainer import errors
from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.config.schema import BLOCK, TensorboardConfig, WandbConfig
from tpujob_trainer.session.session import Session
from tpujob_trainer.telemetry.metrics_file import MetricsFile
from tpujob_trainer.telemetry.samples_file import SamplesFile
from tpujob_trainer.telemetry.trackers import Background, Tracker, Trackers

LIMIT_SECONDS = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenedFor:
    """The run that a tracker is opened for."""

    run: ResolvedConfig
    directory: str | None
    """The checkpoint directory."""
    first_step: int
    hosts: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """What people look for in a list of runs: resolved configuration, size of the model, and where it ran."""
        resolved: dict[str, Any] = json.loads(self.run.as_json())
        return {
            **resolved,
            "numParameters": self.run.model.num_parameters,
            "numDevices": jax.device_count(),
            "hosts": list(self.hosts),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrackerKind:
    """One experiment tracker."""

    name: str
    """Its block in `trackers`, and its label in metrics and messages."""
    package: str
    """What Python imports for it."""
    open: Callable[[Any, OpenedFor], Tracker]
    """Given the block; called in the tracker's thread on process 0 alone, and imports the package there."""
    needs_directory: Callable[[Any], str | None] = lambda block: None
    """The field that is required where there is no checkpoint directory; None: the block is complete."""


def _tensorboard(block: TensorboardConfig, of: OpenedFor) -> Tracker:
    from tpujob_trainer.telemetry.tensorboard import TensorBoard

    return TensorBoard(block.directory or f"{of.directory}/tensorboard", first_step=of.first_step)


def _wandb(block: WandbConfig, of: OpenedFor) -> Tracker:
    from tpujob_trainer.telemetry.wandb import WandB

    return WandB(
        project=block.project, entity=block.entity, name=block.name, directory=of.directory, config=of.summary()
    )


KINDS = (
    TrackerKind(
        name="tensorboard",
        package="tensorboardX",
        open=_tensorboard,
        needs_directory=lambda block: "directory" if block.directory is None else None,
    ),
    TrackerKind(name="wandb", package="wandb", open=_wandb),
)


def make_trackers(run: ResolvedConfig, session: Session, *, first_step: int) -> Trackers:
    """The trackers that are configured, metrics.csv and samples.jsonl; nothing on any process but 0.

    Raises:
        ConfigurationError: a package is not installed on process 0, or there is no place for the files.
    """
    runtime, directory, failures = session.runtime, session.directory, session.metrics.tracker_failures
    runtime.coordination.lead_decides("trackers", lambda: _check(run, directory), limit_seconds=LIMIT_SECONDS)
    if not runtime.is_lead:
        return Trackers()
    of = OpenedFor(run=run, directory=directory, first_step=first_step, hosts=runtime.coordination.hosts)

    def background(name: str, open_tracker: Callable[[], Tracker]) -> Background:
        # Exported as 0 from the start: a series that begins with its first increment has no rate.
        failures.labels(tracker=name)
        return Background(name, open_tracker, lost=lambda name: failures.labels(tracker=name).inc())

    made = []
    if directory:
        made.append(background("metrics.csv", lambda: MetricsFile(directory, first_step=first_step)))
    if directory and run.sample:
        made.append(background("samples.jsonl", lambda: SamplesFile(directory)))
    made += [background(kind.name, functools.partial(kind.open, block, of)) for kind, block in _used(run)]
    return Trackers(made)


def _used(run: ResolvedConfig) -> list[tuple[TrackerKind, Any]]:
    """The trackers whose block is there, each with its block."""
    blocks = [(kind, getattr(run.trackers, kind.name, None)) for kind in KINDS]
    return [(kind, block) for kind, block in blocks if block is not None]


def _check(run: ResolvedConfig, directory: str | None) -> None:
    for kind, block in _used(run):
        if importlib.util.find_spec(kind.package) is None:
            raise errors.ConfigurationError(
                f"{BLOCK}.trackers: the package {kind.package} is not installed in this image; install it there "
                f"(pip install {kind.package.lower()}), or leave the tracker out"
            )
        field = kind.needs_directory(block)
        if field and directory is None:
            raise errors.ConfigurationError(
                f"{BLOCK}.trackers.{kind.name}.{field}: required, since spec.checkpointDir is not set"
            )
