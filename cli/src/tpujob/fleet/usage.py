"""The chips and chip-hours of jobs, and what these went to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.status import HOLDS_MACHINES, WAITS_FOR_MACHINES, Phase


class Went(StrEnum):
    """What chip-hours went to: the name in JSON and the label for people, in display order."""

    label: str

    def __new__(cls, word: str, label: str) -> Self:
        """Makes a member from its name and its label."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.label = label
        return member

    TRAINING = ("training", "training")
    EVALUATION = ("evaluation", "evaluation")
    STARTING = ("starting", "starting")
    """In each attempt: start of processes, reading a checkpoint, compiling."""
    SAVING = ("saving", "saving")
    DATA = ("data", "waiting for data")
    CRASHES = ("crashes", "lost to crashes")
    """Lost steps, and machines held until the next attempt."""
    DISRUPTION = ("disruption", "lost to disruption")
    """The same after a disruption, or for lack of capacity."""
    UNEXPLAINED = ("unexplained", "lost, cause unknown")
    STALLED = ("stalled", "stalled")
    """No step was made."""
    ENDING = ("ending", "ending")
    UNREPORTED = ("unreported", "not reported")
    """Machines were held, but no process reported for what."""


USEFUL = (Went.TRAINING, Went.EVALUATION)
LOST = tuple(went for went in Went if went not in (*USEFUL, Went.UNREPORTED))
"""All that is neither useful nor unreported."""
BY_CAUSE = {
    Cause.CRASH: Went.CRASHES,
    Cause.DISRUPTION: Went.DISRUPTION,
    Cause.CAPACITY: Went.DISRUPTION,
    Cause.UNEXPLAINED: Went.UNEXPLAINED,
}


@dataclass(frozen=True, kw_only=True)
class Use:
    """The usage of a job, or of several together."""

    used: float = 0
    """Chips that train now: all hosts are ready, and steps are made."""
    idle: float = 0
    """Chips held now by jobs that start, restart, stop or stall."""
    waiting: float = 0
    """Chips for which jobs wait now."""
    waiting_hours: float = 0
    """Chip-hours for which jobs waited."""
    went: Mapping[Went, float] = field(default_factory=dict)
    """Chip-hours held, by what they went to."""

    @property
    def chip_hours(self) -> float:
        """All chip-hours held."""
        return sum(self.went.values())

    @property
    def lost(self) -> float:
        """Chip-hours that are known to have gone to other things than training and evaluation."""
        return sum(self.went.get(went, 0) for went in LOST)

    @property
    def goodput(self) -> float | None:
        """Training's fraction of the reported chip-hours; None: none are reported."""
        reported = self.chip_hours - self.went.get(Went.UNREPORTED, 0)
        return self.went.get(Went.TRAINING, 0) / reported if reported > 0 else None

    def __add__(self, other: Use) -> Use:
        """The sum of both."""
        went = {key: self.went.get(key, 0) + other.went.get(key, 0) for key in Went}
        return Use(
            used=self.used + other.used,
            idle=self.idle + other.idle,
            waiting=self.waiting + other.waiting,
            waiting_hours=self.waiting_hours + other.waiting_hours,
            went={key: value for key, value in went.items() if value},
        )

    def scaled(self, part: float) -> Use:
        """A fraction of its chip-hours held."""
        return Use(went={key: value * part for key, value in self.went.items()})


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The labels of a job."""

    namespace: str
    job: str
    queue: str = ""
    owner: str = ""
    accelerator: str = ""
    is_spot: bool = False


@dataclass(frozen=True, kw_only=True)
class JobUsage:
    """The usage of a job while it had these labels."""

    labels: Labels
    use: Use
    restarts: Mapping[Cause, int] = field(default_factory=dict)
    """By cause; causes that did not occur are left out."""


def chips_now(phase: str, chips: float) -> Use:
    """The present use of the chips of a job in this phase."""
    if phase == Phase.RUNNING:
        return Use(used=chips)
    if phase in HOLDS_MACHINES:
        return Use(idle=chips)
    return Use(waiting=chips) if phase in WAITS_FOR_MACHINES else Use()


def account(
    held: Mapping[str, float], reported: Mapping[str, float], restarts: Mapping[Cause, int]
) -> dict[Went, float]:
    """Chip-hours of a job by what they went to; unless more was reported, their sum is that of the machines held.

    Args:
        held: Chip-hours by phase.
        reported: Chip-hours by what process 0 reports they went to: the names of Went, and `lost` for lost steps.
        restarts: Their number by cause, in proportion to which the lost chip-hours are divided.
    """
    total = sum(hours for phase, hours in held.items() if phase in HOLDS_MACHINES)
    went = {word: reported[word] for word in Went if word in reported}
    # The process counts a hanging step as training; the operator's phase tells it apart.
    went[Went.STALLED] = min(held.get(Phase.STALLED, 0), went.get(Went.TRAINING, 0))
    went[Went.TRAINING] = went.get(Went.TRAINING, 0) - went[Went.STALLED]
    rest = max(0.0, total - sum(went.values()))
    lost = min(rest, reported.get("lost", 0) + held.get(Phase.RESTARTING, 0))
    number = sum(restarts.values())
    for cause, count in restarts.items() if number else [(Cause.UNEXPLAINED, 1)]:
        went[BY_CAUSE[cause]] = went.get(BY_CAUSE[cause], 0) + lost * count / (number or 1)
    went[Went.UNREPORTED] = rest - lost
    return {key: hours for key, hours in went.items() if hours > 0}
