"""How many workers a running job should have: a change of `spec.workers` that its Job does not have yet.

Kubernetes changes the size of an Indexed Job in place: new indexes are added at the end, and the highest are the first
to go (kubernetes/enhancements:keps/sig-apps/3715-elastic-indexed-job).
"""

from tpujob_operator.base.settings import Settings
from tpujob_operator.observe.state import Observed
from tpujob_resource.messages.conditions import Reason, sentence
from tpujob_resource.models.phases import TERMINAL
from tpujob_resource.rules.load import load_job, without_status
from tpujob_resource.topology.errors import InvalidJob


def wanted_workers(observed: Observed, settings: Settings) -> int | None:
    """The new size of the Job; None: it has it already, or may not have it."""
    wanted = _asked(observed)
    return None if wanted is None or refusal(observed, settings) is not None else wanted


def refusal(observed: Observed, settings: Settings) -> tuple[Reason, str] | None:
    """Why the requested number of workers is refused; None: there is no request, or no obstacle."""
    if _asked(observed) is None:
        return None
    try:
        load_job(without_status(observed.manifest), settings)
    except InvalidJob as error:
        return Reason.REJECTED, sentence(Reason.REJECTED, problems="\n".join(error.problems))
    return None


def _asked(observed: Observed) -> int | None:
    job, jobset = observed.worker_job, observed.jobset
    if job is None or jobset is None or jobset.outcome is not None or observed.status.phase in TERMINAL:
        return None
    wanted = observed.spec.workers
    return None if wanted == job.workers else wanted
