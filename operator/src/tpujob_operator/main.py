"""The operator's process: puts the parts together, and ends when told to.

The main loop reconciles, lists and serves; the watches have a thread. A defect in one of the parts ends the process
with an error: all state is in the cluster, a start takes about a second, and a process that has lost a part should not
look alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys

import aiohttp
from kubernetes.aio.config import ConfigException
from prometheus_client import REGISTRY

from tpujob_contract import kubernetes_names
from tpujob_operator.controller.http import serving
from tpujob_operator.controller.job_gauges import JobGauges
from tpujob_operator.controller.leader_election import Leadership
from tpujob_operator.controller.reconcile import Reconciler
from tpujob_operator.controller.resync import Resync
from tpujob_operator.controller.watch_staleness import WatchStaleness
from tpujob_operator.controller.watches import Seen, Watches
from tpujob_operator.controller.work_queue import WorkQueue
from tpujob_operator.kube.client import Storage
from tpujob_operator.observe.gather import Gatherer
from tpujob_operator.observe.report_client import Reports
from tpujob_operator.observe.terminations import Evidence, Key
from tpujob_operator.settings import InvalidSetting, Settings

logger = logging.getLogger(__name__)


async def run(settings: Settings) -> None:
    """Runs the operator until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with (
        await Storage.connect() as storage,
        aiohttp.ClientSession(trust_env=False) as session,
        asyncio.TaskGroup() as tasks,
    ):
        staleness, evidence, jobs = WatchStaleness(), Evidence(), JobGauges(lambda: storage.may_write())
        reports = Reports(session, interval=settings.report_interval_seconds)
        gatherer = Gatherer(storage, evidence, reports, settings)
        leadership = Leadership(storage, settings) if settings.leader_election else None
        if leadership is not None:
            storage.may_write = lambda: leadership.is_leader
        reconciler = Reconciler(storage, gatherer, settings, jobs, leads=storage.may_write)
        queue: WorkQueue[Key] = WorkQueue(reconciler.reconcile)
        resync = Resync(storage, settings, add=queue.add, staleness=staleness, jobs=jobs, evidence=evidence)

        def notice(seen: Seen) -> None:
            key = job_of(seen)
            if key is None:
                return
            if seen.resource == "pods":
                evidence.note(key, seen.manifest, deleted=seen.deleted)
            else:
                if seen.resource == kubernetes_names.PLURAL:
                    evidence.note_job(key, seen.manifest, deleted=seen.deleted)
                staleness.note_watched(seen.resource, seen.manifest, deleted=seen.deleted)
                is_job = seen.resource == kubernetes_names.PLURAL
                if is_job and not seen.deleted and storage.is_own_write(seen.manifest):
                    return
            queue.add(key)

        watches = Watches(settings, notice)
        REGISTRY.register(jobs)
        async with serving(staleness, settings):
            running = [tasks.create_task(queue.run()), tasks.create_task(resync.run())]
            if leadership is not None:
                running.append(tasks.create_task(leadership.run(resync.soon)))
            watches.start()
            logger.info("Operator started: namespaces %s", ", ".join(settings.watch_namespaces) or "all")
            await stopped.wait()
            logger.info("Operator stops: asked to")
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            if leadership is not None:
                await leadership.give_back()
            watches.stop()


def job_of(seen: Seen) -> Key | None:
    """The job that something seen belongs to; None for a child that has lost its label."""
    metadata = seen.manifest["metadata"]
    name = (
        metadata["name"]
        if seen.resource == kubernetes_names.PLURAL
        else (metadata.get("labels") or {}).get(kubernetes_names.JOB_NAME)
    )
    return (metadata["namespace"], name) if name else None


def main() -> None:
    """The command `tpujob-operator`: settings from the environment; exits with 2 when they cannot work."""
    try:
        settings = Settings.from_environ(os.environ)
    except InvalidSetting as error:
        sys.stderr.write(f"tpujob-operator: {error}\n")
        sys.exit(2)
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    # Kopf reports each handled event; handlers are doors here, and what comes of an event is logged behind them.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # It warns that it does not handle signals in its thread; they are handled above.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(run(settings))
        except ConfigException as error:
            sys.stderr.write(f"tpujob-operator: no cluster: {error}; run it in a pod, or set KUBECONFIG\n")
            sys.exit(2)


if __name__ == "__main__":
    main()
