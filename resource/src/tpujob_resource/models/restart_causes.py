"""The causes of restarts, one row each.

Status, metrics, dashboards and `tpujob describe` derive from these rows. The operator determines the cause of a restart
(`tpujob_operator.decide.causes.attempt_cause`).
"""

from enum import StrEnum
from typing import Self


class Cause(StrEnum):
    """The cause of a restart. Each row: word, field of the status that counts it, text in messages, label."""

    status_field: str
    """Path of the field of `Status` with the number of such restarts."""
    template: str
    """The message after "Restart 3, "; the braces are replaced by a sentence about what happened."""
    label: str
    """The name of the number in `tpujob describe`; empty if the cause does not count as a restart of the job."""

    def __new__(cls, word: str, status_field: str, template: str, label: str) -> Self:
        """Makes the member of a row."""
        cause = str.__new__(cls, word)
        cause._value_ = word
        cause.status_field = status_field
        cause.template = template
        cause.label = label
        return cause

    CRASH = ("Crash", "restarts.crashes", "after a crash: {}", "crashes")
    """A process failed by itself: the restart counts against `spec.restarts.crashes`."""
    DISRUPTION = ("Disruption", "restarts.disruptions", "after a disruption, which is free: {}", "disruptions")
    """A pod was taken away or asked to stop, and the others followed: the restart is free."""
    UNEXPLAINED = ("Unexplained", "restarts.unexplained", "after an end without a known cause: {}", "unexplained")
    """The operator did not see how the attempt ended; never counted as a crash."""
    CAPACITY = (
        "Capacity",
        "restarts.capacity",
        "because machines are missing, which is free: {}",
        "for want of machines",
    )
    """Machines for some hosts did not arrive while the others waited: the restart is free."""
    SUSPENSION = ("Suspension", "internal.suspension_restarts", "after a suspension: {}", "")
    """The job was being suspended: not a restart of the job, although JobSet counts it."""

    @property
    def is_charged(self) -> bool:
        """Whether it counts against `spec.restarts.crashes`."""
        return self is Cause.CRASH

    @property
    def is_restart(self) -> bool:
        """Whether it counts as a restart of the job."""
        return bool(self.label)


FREE = tuple(cause for cause in Cause if not cause.is_charged)
RESTARTS = tuple(cause for cause in Cause if cause.is_restart)
