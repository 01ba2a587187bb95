"""What jobs used, and what their chip-hours went to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.status import HOLDS_MACHINES, WAITS_FOR_MACHINES, Phase


class Went(StrEnum):
    """What chip-hours went to: the word in JSON, and for people. In the order in which they are shown."""

    label: str

    def __new__(cls, word: str, label: str) -> Self:
        """Makes the member of a row."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.label = label
        return member

    TRAINING = ("training", "training")
    EVALUATION = ("evaluation", "evaluation")
    STARTING = ("starting", "starting")
    """Start of processes, reading a checkpoint, compiling: of each attempt."""
    SAVING = ("saving", "saving")
    DATA = ("data", "waiting for data")
    CRASHES = ("crashes", "lost to crashes")
    """Steps made in vain, and machines held until the next attempt."""
    DISRUPTION = ("disruption", "lost to disruption")
    """The same after something was taken away, or for want of machines."""
    UNEXPLAINED = ("unexplained", "lost, cause unknown")
    STALLED = ("stalled", "stalled")
    """No step was made."""
    ENDING = ("ending", "ending")
    UNREPORTED = ("unreported", "not reported")
    """Machines were held, and no process said for what."""


USEFUL = (Went.TRAINING, Went.EVALUATION)
LOST = tuple(went for went in Went if went not in (*USEFUL, Went.UNREPORTED))
"""What is neither useful nor unknown."""
BY_CAUSE = {
    Cause.CRASH: Went.CRASHES,
    Cause.DISRUPTION: Went.DISRUPTION,
    Cause.CAPACITY: Went.DISRUPTION,
    Cause.UNEXPLAINED: Went.UNEXPLAINED,
}


@dataclass(frozen=True, kw_only=True)
class Use:
    """What a job, or several together, used."""

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
        """All that were held."""
        return sum(self.went.values())

    @property
    def lost(self) -> float:
        """Chip-hours that are known to have gone to something else than training and evaluation."""
        return sum(self.went.get(went, 0) for went in LOST)

    @property
    def goodput(self) -> float | None:
        """Training's part of the chip-hours of which something is reported; None where nothing is."""
        reported = self.chip_hours - self.went.get(Went.UNREPORTED, 0)
        return self.went.get(Went.TRAINING, 0) / reported if reported > 0 else None

    def __add__(self, other: Use) -> Use:
        """Both together."""
        went = {key: self.went.get(key, 0) + other.went.get(key, 0) for key in Went}
        return Use(
            used=self.used + other.used,
            idle=self.idle + other.idle,
            waiting=self.waiting + other.waiting,
            waiting_hours=self.waiting_hours + other.waiting_hours,
            went={key: value for key, value in went.items() if value},
        )

    def scaled(self, part: float) -> Use:
        """A part of its chip-hours held."""
        return Use(went={key: value * part for key, value in self.went.items()})


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Of a job."""

    namespace: str
    job: str
    queue: str = ""
    owner: str = ""
    accelerator: str = ""
    is_spot: bool = False


@dataclass(frozen=True, kw_only=True)
class JobUsage:
    """What a job used while it had these labels."""

    labels: Labels
    use: Use
    restarts: Mapping[Cause, int] = field(default_factory=dict)
    """By cause, of those that there were."""


def chips_now(phase: str, chips: float) -> Use:
    """Chips of a job in this phase."""
    if phase == Phase.RUNNING:
        return Use(used=chips)
    if phase in HOLDS_MACHINES:
        return Use(idle=chips)
    return Use(waiting=chips) if phase in WAITS_FOR_MACHINES else Use()


def account(
    held: Mapping[str, float], reported: Mapping[str, float], restarts: Mapping[Cause, int]
) -> dict[Went, float]:
    """Chip-hours of a job by what they went to; their sum is that of `held`.

    Args:
        held: Chip-hours by phase.
        reported: Chip-hours by what process 0 says they went to: the words of Went, and `lost` for steps in vain.
        restarts: How many, by cause; what was lost is divided among the causes by their number.
    """
    total = sum(hours for phase, hours in held.items() if phase in HOLDS_MACHINES)
    went = {word: reported[word] for word in Went if word in reported}
    # The process counts a step that hangs as training; the operator knows better.
    went[Went.STALLED] = min(held.get(Phase.STALLED, 0), went.get(Went.TRAINING, 0))
    went[Went.TRAINING] = went.get(Went.TRAINING, 0) - went[Went.STALLED]
    rest = max(0.0, total - sum(went.values()))
    lost = min(rest, reported.get("lost", 0) + held.get(Phase.RESTARTING, 0))
    number = sum(restarts.values())
    for cause, count in restarts.items() if number else [(Cause.UNEXPLAINED, 1)]:
        went[BY_CAUSE[cause]] = went.get(BY_CAUSE[cause], 0) + lost * count / (number or 1)
    went[Went.UNREPORTED] = rest - lost
    return {key: hours for key, hours in went.items() if hours > 0}
