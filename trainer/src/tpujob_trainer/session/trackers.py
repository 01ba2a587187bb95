"""The trackers of a run: one row for each experiment tracker, and how the configured ones are opened.

A tracker is added by its block in `config.schema.TrackersConfig`, its class in `telemetry/`, and a row here.
"""

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from tpujob_trainer.config.schema import BLOCK, TensorboardConfig, TrackersConfig, WandbConfig
from tpujob_trainer.session.session import Session
from tpujob_trainer.telemetry.tracker_files import MetricsFile, SamplesFile
from tpujob_trainer.telemetry.trackers import Background, Tracker, Trackers
from tpujob_trainer.values import errors

LIMIT_SECONDS = 60.0
EXIT_SECONDS = 3.0
"""Limit for pending entries if a run does not end normally."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenedFor:
    """The run that a tracker is opened for."""

    summary: Mapping[str, Any]
    """The configuration, devices and hosts, for a list of runs."""
    directory: str | None
    """The checkpoint directory."""
    first_step: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrackerKind:
    """One experiment tracker."""

    name: str
    """Its block in `trackers`, and its label in metrics and messages."""
    package: str
    """The package that it imports."""
    open: Callable[[Any, OpenedFor], Tracker]
    """Opens it from its block; called in the tracker's thread on process 0 only, and imports the package there."""
    needs_directory: Callable[[Any], str | None] = lambda block: None
    """The field that is required if there is no checkpoint directory; None: the block is complete."""


def _tensorboard(block: TensorboardConfig, of: OpenedFor) -> Tracker:
    from tpujob_trainer.telemetry.tensorboard import TensorBoard

    return TensorBoard(block.directory or f"{of.directory}/tensorboard", first_step=of.first_step)


def _wandb(block: WandbConfig, of: OpenedFor) -> Tracker:
    from tpujob_trainer.telemetry.wandb import WandB

    return WandB(
        project=block.project, entity=block.entity, name=block.name, directory=of.directory, config=dict(of.summary)
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


def make_trackers(
    config: TrackersConfig | None,
    session: Session,
    *,
    first_step: int,
    summary: Mapping[str, Any],
    keeps_samples: bool,
    field: str = f"{BLOCK}.trackers",
) -> Trackers:
    """The configured trackers, metrics.csv and samples.jsonl; none on processes other than 0.

    Args:
        config: The trackers block; None: only the files.
        session: Of this process; all processes must make the call.
        first_step: Steps done before this attempt; entries of earlier attempts for later steps are left out.
        summary: The run's configuration, for a list of runs; devices and hosts are added.
        keeps_samples: Whether the run will have sampled texts.
        field: The field of `config`, for messages.

    Raises:
        ConfigurationError: a package is not installed on process 0, or there is no place for the files.
    """
    runtime, directory, failures = session.runtime, session.directory, session.metrics.tracker_failures
    used = [(kind, block) for kind in KINDS if (block := getattr(config, kind.name, None)) is not None]
    runtime.coordination.lead_decides("trackers", lambda: _check(used, directory, field), limit_seconds=LIMIT_SECONDS)
    if not runtime.is_lead:
        return Trackers()
    placed = {**summary, "numDevices": jax.device_count(), "hosts": list(runtime.coordination.hosts)}
    of = OpenedFor(summary=placed, directory=directory, first_step=first_step)

    def background(name: str, open_tracker: Callable[[], Tracker]) -> Background:
        # Exported as 0 from the start: a series that begins with its first increment has no rate.
        failures.labels(tracker=name)
        return Background(name, open_tracker, lost=lambda name: failures.labels(tracker=name).inc())

    made = []
    if directory:
        made.append(background("metrics.csv", lambda: MetricsFile(directory, first_step=first_step)))
    if directory and keeps_samples:
        made.append(background("samples.jsonl", lambda: SamplesFile(directory)))
    made += [background(kind.name, functools.partial(kind.open, block, of)) for kind, block in used]
    trackers = Trackers(made)
    session.stop.at_exit(lambda code, message: trackers.close(EXIT_SECONDS))
    return trackers


def _check(used: Sequence[tuple[TrackerKind, Any]], directory: str | None, field: str) -> None:
    for kind, block in used:
        if importlib.util.find_spec(kind.package) is None:
            raise errors.ConfigurationError(
                f"{field}: the package {kind.package} is not installed in this image; install it there "
                f"(pip install {kind.package.lower()}), or leave the tracker out"
            )
        required = kind.needs_directory(block)
        if required and directory is None:
            raise errors.ConfigurationError(
                f"{field}.{kind.name}.{required}: required, since spec.checkpointDir is not set"
            )
