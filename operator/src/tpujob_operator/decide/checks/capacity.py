"""What a pod without a node waits for, according to its Events, and whether a person has to act.

Reasons and texts as in GoogleCloudPlatform/cluster-autoscaler:pkg/visibility/events/failed_scale_up_event_logger.go and
the upstream autoscaler. A TPU node pool may take hours; only what a person has to fix counts as an obstacle.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tpujob_operator.observe.state import Notice
from tpujob_resource.messages.conditions import Reason

NO_LEADER = "follower pod node selector"
"""JobSet's webhook refuses the other pods of a slice until its first one has a node."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """What a pod waits for."""

    reason: Reason
    detail: str
    """The original message."""
    needs_somebody: bool
    """Whether waiting alone does not help: a person has to act."""


FAILED = (
    # part of the message, in lower case; reason; whether a person has to act
    ("out of resources", Reason.OUT_OF_RESOURCES, False),
    ("quota exceeded", Reason.QUOTA_EXCEEDED, True),
    ("invalid tpu topology", Reason.TOPOLOGY_REFUSED, True),
    ("invalid tpu configuration", Reason.TOPOLOGY_REFUSED, True),
    ("unsupported compact placement", Reason.TOPOLOGY_REFUSED, True),
    ("reservation", Reason.RESERVATION_UNUSABLE, True),
    ("ip space exhausted", Reason.SCALE_UP_FAILED, True),
    ("service account was deleted", Reason.SCALE_UP_FAILED, True),
)
"""Texts in the messages of FailedScaleUp Events; the first match counts."""


def awaited(scheduler_message: str, notices: Sequence[Notice]) -> Wait:
    """What the pod waits for.

    Args:
        scheduler_message: Why the scheduler found no node.
        notices: Events about the pod; the newest one of the autoscaler counts.
    """
    for notice in sorted(notices, key=lambda n: n.last_seen, reverse=True):
        match notice.reason:
            case "TriggeredScaleUp":
                return Wait(reason=Reason.SCALE_UP_REQUESTED, detail=notice.message, needs_somebody=False)
            case "NotTriggerScaleUp":
                return Wait(reason=Reason.NO_POOL_FITS, detail=notice.message, needs_somebody=True)
            case "FailedScaleUp":
                return _failed(notice.message)
    return Wait(reason=Reason.UNSCHEDULABLE, detail=scheduler_message, needs_somebody=True)


def _failed(message: str) -> Wait:
    for text, reason, needs_somebody in FAILED:
        if text in message.lower():
            return Wait(reason=reason, detail=message, needs_somebody=needs_somebody)
    return Wait(reason=Reason.SCALE_UP_FAILED, detail=message, needs_somebody=False)
