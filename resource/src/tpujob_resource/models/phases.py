"""The phases of a job: each with its meaning, when it ends, and what holds of a job in it."""

from enum import Flag, StrEnum, auto
from typing import Self


class Traits(Flag):
    """Properties of a job in a phase."""

    NONE = 0
    TERMINAL = auto()
    """Only an explicit retry or edit ends the phase."""
    EDITABLE = auto()
    """Every field of the spec may change; the change starts a new incarnation."""
    RUNNING = auto()
    """All hosts run."""
    HOLDS_MACHINES = auto()
    """Pods have machines, or are about to get them."""
    NO_PODS = auto()
    """No pod runs, and how earlier pods ended does not matter for the next start."""
    WARNING = auto()
    """The job needs attention: its Events are warnings."""
    WAITING = auto()
    """The job waits; dashboards count such jobs."""


class Phase(StrEnum):
    """The state of a job in one word. Each row: the word, its meaning, when the phase ends, its traits.

    The documentation's table of phases is generated from these rows.
    """

    meaning: str
    continues: str
    """When the phase ends."""
    traits: Traits

    def __new__(cls, word: str, meaning: str, continues: str, traits: Traits) -> Self:
        """Makes the member of a row."""
        phase = str.__new__(cls, word)
        phase._value_ = word
        phase.meaning = meaning
        phase.continues = continues
        phase.traits = traits
        return phase

    INVALID = (
        "Invalid",
        "the spec cannot work; the message names each field",
        "when it is edited",
        Traits.EDITABLE | Traits.NO_PODS | Traits.WARNING,
    )
    QUEUED = (
        "Queued",
        "its JobSet is being created, or waits for a Kueue queue",
        "by itself",
        Traits.NO_PODS | Traits.WAITING,
    )
    WAITING_FOR_CAPACITY = (
        "WaitingForCapacity",
        "a pod has no node",
        "by itself, unless the condition Blocked is true",
        Traits.WAITING,
    )
    STARTING = (
        "Starting",
        "not every host is ready yet",
        "by itself",
        Traits.HOLDS_MACHINES,
    )
    RUNNING = (
        "Running",
        "all hosts are ready",
        "",
        Traits.RUNNING | Traits.HOLDS_MACHINES,
    )
    STALLED = (
        "Stalled",
        "all hosts are ready, and no step is made (an alarm; the trainer's watchdog ends what hangs)",
        "with the next step",
        Traits.RUNNING | Traits.HOLDS_MACHINES | Traits.WARNING | Traits.WAITING,
    )
    RESTARTING = (
        "Restarting",
        "a host has failed; all start again from the last checkpoint. The message names the cause",
        "by itself",
        Traits.HOLDS_MACHINES | Traits.WARNING,
    )
    STOPPING = (
        "Stopping",
        "pods use their grace period to save and end",
        "when they are gone",
        Traits.HOLDS_MACHINES,
    )
    SUSPENDED = (
        "Suspended",
        "`spec.suspend` is set; no pod is left, and with a queue no JobSet",
        "with `suspend: false`",
        Traits.EDITABLE | Traits.NO_PODS,
    )
    SUCCEEDED = (
        "Succeeded",
        "every host exited with 0",
        "when `spec.retry` is raised",
        Traits.TERMINAL,
    )
    FAILED = (
        "Failed",
        "see `status.failure` and the message",
        "when `spec.retry` is raised or the spec is edited",
        Traits.TERMINAL | Traits.EDITABLE | Traits.WARNING,
    )


def phases_with(traits: Traits) -> tuple[Phase, ...]:
    """The phases that have one of these traits, in the order of the table."""
    return tuple(phase for phase in Phase if phase.traits & traits)


TERMINAL = phases_with(Traits.TERMINAL)
HOLDS_MACHINES = phases_with(Traits.HOLDS_MACHINES)
WAITS_FOR_MACHINES = tuple(phase for phase in phases_with(Traits.WAITING) if phase not in HOLDS_MACHINES)
RUNNING_PHASES = phases_with(Traits.RUNNING)
EDITABLE_PHASES = phases_with(Traits.EDITABLE)
