"""What one pass leaves for the next."""

from tests.operator.building import job
from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.job_gauges import JobGauges
from tpujob_operator.controller.reconcile import Reconciler
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import Storage, Target
from tpujob_operator.kube.requests import Object, Resource
from tpujob_operator.observe.gather import Gatherer
from tpujob_operator.observe.state import Observed
from tpujob_operator.observe.terminations import Key

KEY = ("team", "llama")


class NoJob(Storage):
    """An API server that does not have the job any more."""

    def __init__(self) -> None:
        self.may_write = lambda: True

    async def patch(
        self, resource: Resource, target: Target, patch: Object, *, subresource: str | None = None
    ) -> Object:
        raise errors.NotFound("patch tputrainingjobs/status team/llama", 404, "not found")


class OldCache(Gatherer):
    """Still has the job, as nobody has told that it was deleted."""

    def __init__(self) -> None:
        self.reads: list[bool] = []

    async def gather(self, key: Key, *, fresh: bool = False) -> tuple[Observed, Object | None] | None:
        self.reads.append(fresh)
        return None if fresh else (Observed(manifest=job(accelerator="nonsense")), None)


async def test_job_that_is_gone_unnoticed_is_read_anew_and_left_alone() -> None:
    cache = OldCache()
    reconciler = Reconciler(NoJob(), cache, Settings(), JobGauges())
    assert await reconciler.reconcile(KEY) is not None
    assert await reconciler.reconcile(KEY) is None
    assert cache.reads == [False, True]
