"""The watches: all that kopf does here, and all of kopf there is.

- Handlers are doors: they hand what they saw to `notice` and do nothing else. Only raw event handlers are used, so kopf
  itself never writes: no finalizer, no annotation, no progress, no Kubernetes Event.
- Kopf takes some errors as final (an ERROR in a watch that is not 410, the same token refused twice) and ends with
  everything it started. The process need not end with it: kopf runs in a thread with a loop of its own and is started
  again, with a growing delay, while reconciles go on in the main loop. A list follows each start, so what happened in
  between is caught up with.
- Requests that fail (5xx, 403, no connection) are repeated for ever, at growing and jittered intervals.
- A watch that has gone silent without an error is found by `staleness`, which fails the liveness probe.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import kopf

from tpujob_contract import kubernetes_names
from tpujob_operator import metrics
from tpujob_operator.controller.work_queue import backoff_seconds
from tpujob_operator.kube.client import client_configuration
from tpujob_operator.settings import Settings

logger = logging.getLogger(__name__)

JOBSETS = (kubernetes_names.JOBSET_GROUP, kubernetes_names.JOBSET_VERSION, kubernetes_names.JOBSET_PLURAL)
LASTED_SECONDS = 60.0
"""A watch that lived this long was well; the next start is not delayed for its end."""
LONGEST_RESTART_SECONDS = 15.0
"""Between starts of the watching: it costs a few lists, and until then only resyncs tell what happens."""
KOPF_END_SECONDS = 3.0
"""Given to kopf for tidying up after one of its tasks has ended."""
STOP_SECONDS = 6.0


@dataclass(frozen=True)
class Seen:
    """Something that came through a watch."""

    resource: str
    """Plural: tputrainingjobs, jobsets or pods."""
    deleted: bool
    manifest: Mapping[str, Any]


class _ForEver:
    """Delays between repeated requests: from a second to a minute, jittered, without end."""

    def __iter__(self) -> Iterator[float]:
        return (backoff_seconds(n, first=1, longest=60) for n in itertools.count(1))


class Watches:
    """Kopf in its own thread, watching jobs, and the JobSets and pods that were made for jobs."""

    def __init__(self, settings: Settings, notice: Callable[[Seen], None]) -> None:
        """Describes the watches; `start` begins them.

        Args:
            settings: Which namespaces.
            notice: Called for each event, in the loop that called `start`.
        """
        self._settings = settings
        self._notice = notice
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_watching, name="watches", daemon=True)
        self._kopf_loop: asyncio.AbstractEventLoop | None = None
        self._kopf_stop: asyncio.Event | None = None

    def start(self) -> None:
        """Begins watching; returns at once."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Ends the watching; returns when it has ended, or after some seconds when it will not."""
        self._stopping.set()
        loop, stop = self._kopf_loop, self._kopf_stop
        if loop is not None and stop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)

    def _keep_watching(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            cause: object = "it ended without an error"
            try:
                _run_to_the_first_end(self._watch())
            except Exception as error:  # noqa: BLE001 — any has the same cure, and is logged below
                cause = f"{type(error).__name__}: {error}"
            if self._stopping.is_set():
                return
            failures = 1 if time.monotonic() - started > LASTED_SECONDS else failures + 1
            delay = backoff_seconds(failures, longest=LONGEST_RESTART_SECONDS)
            metrics.WATCH_RESTARTS.inc()
            logger.error("Watching starts again in %.1f s: %s", delay, cause)
            self._stopping.wait(delay)

    async def _watch(self) -> None:
        self._kopf_loop, self._kopf_stop = asyncio.get_running_loop(), asyncio.Event()
        if self._stopping.is_set():
            return
        namespaces = self._settings.watch_namespaces
        tasks = await kopf.spawn_tasks(
            registry=self._registry(),
            settings=_kopf_settings(self._settings),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=list(namespaces),
            stop_flag=self._kopf_stop,
        )
        # None of them ends by itself; the first that does has failed, or was asked to stop.
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([asyncio.create_task(kopf.run_tasks(tasks))], timeout=KOPF_END_SECONDS)
        for task in done:
            task.result()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=5)
        async def login(**_: Any) -> kopf.ConnectionInfo:
            return await _connection()

        @kopf.on.event(kubernetes_names.GROUP, kubernetes_names.VERSION, kubernetes_names.PLURAL, registry=registry)
        async def job_event(event: Mapping[str, Any], **_: Any) -> None:
            self._pass_on(kubernetes_names.PLURAL, event)

        @kopf.on.event(*JOBSETS, registry=registry)
        async def jobset_event(event: Mapping[str, Any], **_: Any) -> None:
            self._pass_on(kubernetes_names.JOBSET_PLURAL, event)

        @kopf.on.event("", "v1", "pods", registry=registry)
        async def pod_event(event: Mapping[str, Any], **_: Any) -> None:
            self._pass_on("pods", event)

        return registry

    def _pass_on(self, resource: str, event: Mapping[str, Any]) -> None:
        seen = Seen(resource, event["type"] == "DELETED", event["object"])
        metrics.WATCH_EVENTS.labels(resource).inc()
        metrics.WATCH_LAST_EVENT.labels(resource).set_to_current_time()
        self._loop.call_soon_threadsafe(self._notice, seen)


def _run_to_the_first_end(main: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine in a new event loop, like asyncio.run, but does not wait for tasks that refuse to end.

    Kopf leaves such tasks behind when its credentials are refused (they wait for new ones, for ever).
    """
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: logger.debug("Left behind by the watching: %s", context))
    try:
        loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=1))
        # Connections that were closed a moment ago need a turn of the loop to go.
        loop.run_until_complete(asyncio.sleep(0.05))
        with contextlib.suppress(TimeoutError):
            loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), timeout=1))
        loop.close()


def _kopf_settings(settings: Settings) -> kopf.OperatorSettings:
    ours = kopf.OperatorSettings()
    ours.posting.enabled = False
    ours.networking.error_backoffs = _ForEver()
    ours.networking.enforce_retry_after = True
    ours.networking.request_timeout = 60
    ours.networking.connect_timeout = 10
    # Finite, so that a stream that is broken in a way nobody has thought of is replaced.
    ours.watching.server_timeout = 240
    ours.watching.client_timeout = 300
    ours.watching.chunk_size = 500
    # Rights to list definitions are cluster-wide; an operator for some namespaces has none.
    ours.scanning.disabled = bool(settings.watch_namespaces)
    ours.watching.label_selectors[JOBSETS] = kubernetes_names.JOB_NAME
    ours.watching.label_selectors["", "v1", "pods"] = kubernetes_names.JOB_NAME
    return ours


async def _connection() -> kopf.ConnectionInfo:
    """The same credentials as the client's, read again each time: tokens are renewed in their file."""
    configuration = await client_configuration()
    scheme, _, token = (configuration.api_key.get("BearerToken") or "").rpartition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        ca_data=configuration.ca_cert_data if not configuration.ssl_ca_cert else None,
        insecure=not configuration.verify_ssl,
        scheme=scheme.capitalize() or None,
        token=token.strip() or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )
