"""The operator's process: assembles the parts, and ends on a signal.

One event loop reconciles, lists, polls reports and answers HTTP requests; kopf has a thread. A defect in one of the
parts ends the process with an error: all state is in the cluster, a start takes about a second, and a process that has
lost a part should not look alive.
"""

import asyncio
import contextlib
import ctypes
import functools
import logging
import os
import signal
import sys

import aiohttp
from kubernetes.aio.config import ConfigException
from prometheus_client import REGISTRY

from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.fair_queue import shared_by_namespaces
from tpujob_operator.controller.http import serving
from tpujob_operator.controller.job_gauges import JobGauges
from tpujob_operator.controller.job_watch import JobWatch
from tpujob_operator.controller.json_logs import JsonFormatter, without_traceback
from tpujob_operator.controller.leader_election import Leadership
from tpujob_operator.controller.reconcile import Reconciler
from tpujob_operator.controller.resync import Resync
from tpujob_operator.controller.watch_staleness import WatchStaleness
from tpujob_operator.controller.watches import Watches
from tpujob_operator.controller.work_queue import WorkQueue
from tpujob_operator.kube.client import Storage, in_pod
from tpujob_operator.observe.cache import Cache
from tpujob_operator.observe.gather import Gatherer
from tpujob_operator.observe.report_poller import ReportPoller
from tpujob_operator.observe.terminations import TerminationCache
from tpujob_resource.models.settings import InvalidSetting

logger = logging.getLogger(__name__)

POLLS_AT_ONCE = 32
_M_MMAP_THRESHOLD = -3
"""Of malloc.h."""


async def run(settings: Settings) -> None:
    """Runs the operator until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with (
        await Storage.connect() as storage,
        aiohttp.ClientSession(trust_env=False, auto_decompress=False) as session,
        asyncio.TaskGroup() as tasks,
    ):
        staleness, evidence, jobs = WatchStaleness(), TerminationCache(), JobGauges(lambda: storage.may_write())
        # The queue and these parts refer to each other: the lambdas look up `queue` when they are called.
        reports = ReportPoller(session, news=lambda key: queue.add(key), add=lambda key, after: polls.add(key, after))
        polls = WorkQueue(reports.poll, shared_by_namespaces(POLLS_AT_ONCE))
        cache = Cache(evidence, lambda key: queue.add(key))
        storage.written = cache.note_written
        gatherer = Gatherer(storage, cache, evidence, reports, settings)
        leadership = Leadership(storage, settings) if settings.leader_election else None
        if leadership is not None:
            storage.may_write = lambda: leadership.is_leader
        reconciler = Reconciler(storage, gatherer, settings, jobs, leads=storage.may_write)
        queue = reconciler.queue()
        resync = Resync(storage, settings, add=queue.add, staleness=staleness, jobs=jobs, evidence=evidence)
        watch_jobs = functools.partial(JobWatch, storage, settings)
        watches = Watches(storage, settings, watch_jobs=watch_jobs, cache=cache, evidence=evidence, staleness=staleness)
        gatherer.is_current = watches.is_current

        def elected() -> None:
            # A job that has just been created must not wait for the reconciles of thousands that need no change.
            for key in cache.jobs.unseen_first():
                queue.add(key)
            resync.soon()

        async def reconcile() -> None:
            await watches.wait_until_current()
            await queue.run()

        REGISTRY.register(jobs)
        async with serving(staleness, settings):
            parts = [watches.run(), reconcile(), resync.run(), polls.run()]
            if leadership is not None:
                parts.append(leadership.run(elected))
            running = [tasks.create_task(part) for part in parts]
            logger.info("Operator started: namespaces %s", ", ".join(settings.watch_namespaces) or "all")
            await stopped.wait()
            logger.info("Operator stops: asked to")
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            if leadership is not None:
                await leadership.give_back()
            await asyncio.to_thread(watches.join)


def set_up_logging(level: str) -> None:
    """Logs to standard error: JSON in a pod, text elsewhere."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if in_pod() else text)
    if level != "DEBUG":
        handler.addFilter(lambda record: not record.name.startswith("kopf") or without_traceback(record))
    logging.basicConfig(level=level, handlers=[handler])
    if level != "DEBUG":
        # Kopf logs every event of every job, and warns at each start that it is not in the main thread.
        logging.getLogger("kopf").setLevel(logging.WARNING)
        logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


def return_freed_memory() -> None:
    """Has glibc return blocks of 64 KiB and more when they are freed, as it does at first.

    With each such block that is freed it would take larger ones, up to 32 MiB, from its heap. There, the JSON of a job
    lies between the remains of its decoded form: jobs of 37 KB with 3,000 keys took 280 KB each.
    """
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 64 << 10)


def main() -> None:
    """The command `tpujob-operator`: settings from the environment; exits with 2 if they are invalid."""
    try:
        settings = Settings.from_environ(os.environ)
    except InvalidSetting as error:
        sys.stderr.write(f"tpujob-operator: {error}\n")
        sys.exit(2)
    set_up_logging(settings.log_level)
    return_freed_memory()
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(run(settings))
        except ConfigException as error:
            sys.stderr.write(f"tpujob-operator: no cluster: {error}; run it in a pod, or set KUBECONFIG\n")
            sys.exit(2)


if __name__ == "__main__":
    main()
