"""One operator process: the real parts, put together as in `main`."""

import asyncio
import functools
from collections.abc import Callable

from tests.operator.simulation.api import Faults, Server, SimulatedRequests
from tests.operator.simulation.cluster import now
from tests.operator.simulation.job_watch import SimulatedJobWatch
from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.fair_queue import shared_by_namespaces
from tpujob_operator.controller.job_gauges import JobGauges
from tpujob_operator.controller.reconcile import RECONCILES_AT_ONCE, Reconciler
from tpujob_operator.controller.resync import Resync
from tpujob_operator.controller.watch_staleness import WatchStaleness
from tpujob_operator.controller.watches import Watches
from tpujob_operator.controller.work_queue import WorkQueue
from tpujob_operator.kube.client import Storage
from tpujob_operator.observe.cache import Cache
from tpujob_operator.observe.gather import Gatherer
from tpujob_operator.observe.report_poller import ReportPoller
from tpujob_operator.observe.terminations import Key, TerminationCache

SETTINGS = Settings()


async def run(
    server: Server,
    faults: Faults,
    defects: Callable[[BaseException], None],
    *,
    settings: Settings = SETTINGS,
) -> None:
    """Runs until cancelled, as if killed: nothing is put in order.

    Args:
        server: The API server.
        faults: Of the way there.
        defects: Told what a pass raises, which the queue would log and try again.
        settings: The operator's.
    """
    storage, evidence, jobs = Storage(SimulatedRequests(server, faults)), TerminationCache(), JobGauges()
    staleness = WatchStaleness(asyncio.get_running_loop().time)
    cache = Cache(evidence, lambda key: queue.add(key))
    storage.written = cache.note_written
    reports = ReportPoller(None, news=lambda _: None, add=lambda *_: None)  # type: ignore[arg-type]  # no pod has an address
    gatherer = Gatherer(storage, cache, evidence, reports, settings, clock=now)
    reconciler = Reconciler(storage, gatherer, settings, jobs)

    async def reconcile(key: Key) -> float | None:
        try:
            return await reconciler.reconcile(key)
        except Exception as error:
            defects(error)
            raise

    queue = WorkQueue(reconcile, shared_by_namespaces(RECONCILES_AT_ONCE))
    resync = Resync(storage, settings, add=queue.add, staleness=staleness, jobs=jobs, evidence=evidence)
    watch_jobs = functools.partial(SimulatedJobWatch, storage, faults)
    watches = Watches(storage, settings, watch_jobs=watch_jobs, cache=cache, evidence=evidence, staleness=staleness)
    gatherer.is_current = watches.is_current

    async def work() -> None:
        await watches.wait_until_current()
        await queue.run()

    async with asyncio.TaskGroup() as tasks:
        for part in (watches.run(), work(), resync.run()):
            tasks.create_task(part)
