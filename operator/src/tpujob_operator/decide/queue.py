"""What `spec.suspend` means for a job with a queue.

Kueue owns the suspension of a JobSet that names a queue: it resumes what it has admitted, whoever suspended it. So a
job that is to rest gives up its JobSet, and with it its place and its quota; the next incarnation queues again and goes
on from the checkpoints.
"""

from __future__ import annotations

from tpujob_operator.api.conditions import Reason, sentence
from tpujob_operator.api.status import Phase
from tpujob_operator.decide.verdict import POLL_SECONDS, Step, Verdict
from tpujob_operator.observe.state import Observed

GRACE_SECONDS = 60
"""What `spec.gracePeriodSeconds` is when it is not given."""


def is_to_rest_without_jobset(observed: Observed) -> bool:
    """Whether the job is to be suspended and a queue would not let its JobSet be."""
    return bool(observed.spec.get("queue")) and bool(observed.spec.get("suspend"))


def leaving_queue(observed: Observed, *, step: Step | None = None, renew: bool = False) -> Verdict:
    """The JobSet is to go, or is going; it stays until its pods are gone."""
    grace = observed.spec.get("gracePeriodSeconds") or GRACE_SECONDS
    message = sentence(Reason.LEAVING_QUEUE, queue=observed.spec["queue"], grace=grace)
    return Verdict(
        phase=Phase.STOPPING,
        reason=Reason.LEAVING_QUEUE,
        message=message,
        step=step,
        renew=renew,
        hosts_ready=0,
        again_seconds=0 if renew else POLL_SECONDS,
    )
