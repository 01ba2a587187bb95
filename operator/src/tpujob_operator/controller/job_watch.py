"""The watch of TpuTrainingJobs with kopf, which is the only use of kopf.

- The session that kopf sends its requests with reads the jobs itself, see `kopf_session`: kopf gets no job to decode.
- Handlers forward what they receive and do nothing else. Only raw event handlers are used, so kopf itself never writes:
  no finalizer, no annotation, no progress, no Kubernetes Event.
- Kopf treats some errors as final (an ERROR in a watch that is not 410, the same token refused twice) and ends with all
  its tasks. The process does not end with it: kopf runs in a thread with its own loop and is started again, with a
  growing delay, while reconciles continue in the main loop.
- When kopf lists the jobs, the operator does, because kopf does not report what was deleted since its last watch.
- Requests that fail (5xx, 403, no connection) are repeated without end, at growing and jittered intervals.
- A watch that has gone silent without an error is detected by `watch_staleness`, which fails the liveness probe.

JobSets and pods are watched by `kube.list_watch` instead: they are many, and kopf keeps each of them whole.
"""

import asyncio
import itertools
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import aiohttp
import kopf

from tpujob_contract import kubernetes_names
from tpujob_operator.base import metrics
from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.kopf_session import KopfSession, job_of, run_to_the_first_end
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import JOBS, Storage, client_configuration
from tpujob_operator.kube.errors import backoff_seconds
from tpujob_operator.kube.list_watch import Sink, isolated, list_all

logger = logging.getLogger(__name__)

LASTED_SECONDS = 60.0
"""A watch that ran this long was healthy; its end resets the delay before the next start."""
LONGEST_RESTART_SECONDS = 15.0
"""Between starts of the watch: each costs a few lists, and until then only resyncs show changes."""
KOPF_END_SECONDS = 3.0
"""Time for kopf to clean up after one of its tasks has ended."""
STOPPED_SECONDS = 0.2
"""The same if the process ends: kopf only reads here, so there is nothing to clean up."""
STOP_SECONDS = 6.0
IDLE_SECONDS = 0.1
"""How long kopf keeps a whole job after an event: thousands that are listed at once would fill the memory."""


class _ForEver:
    """Delays between repeated requests: from a second to a minute, jittered, without end."""

    def __iter__(self) -> Iterator[float]:
        return (backoff_seconds(n, first=1, longest=60) for n in itertools.count(1))


class JobWatch:
    """Kopf in its own thread, watching the jobs of all namespaces that are served."""

    def __init__(self, storage: Storage, settings: Settings, sink: Sink) -> None:
        """Stores the parameters; `run` opens the watch.

        Args:
            storage: Lists the jobs for kopf.
            settings: Which namespaces.
            sink: Called with every job, in the loop of `run`.
        """
        self._storage = storage
        self._settings = settings
        self._sink = sink
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_watching, name="kopf", daemon=True)
        self._kopf_loop: asyncio.AbstractEventLoop | None = None
        self._kopf_stop: asyncio.Event | None = None
        self._listed: set[str | None] = set()
        self._ends = 0

    def is_live(self, namespace: str) -> bool:
        """Whether kopf is running and has listed every job of a namespace since its start."""
        return namespace in self._listed or None in self._listed

    async def run(self) -> None:
        """Watches until cancelled; `join` waits for kopf, which ends a little later."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._stop()

    async def _list_for_kopf(self, namespace: str | None) -> str:
        """The version of a list that is made in the loop of `run`; kopf repeats it if it fails."""
        listing = asyncio.run_coroutine_threadsafe(self._list(namespace), self._loop)
        try:
            return await asyncio.wrap_future(listing)
        except errors.ApiError as error:
            raise aiohttp.ClientConnectionError(str(error)) from error

    async def _list(self, namespace: str | None) -> str:
        """Passes all jobs to the sink; returns the version of the list."""
        ends = self._ends
        version = await list_all(self._storage, JOBS, namespace, "", self._sink)
        if ends == self._ends:  # else kopf has ended, and does not watch from there
            self._listed.add(namespace)
        return version

    def _note_ended(self) -> None:
        self._ends += 1
        self._listed.clear()

    def _stop(self) -> None:
        self._stopping.set()
        loop, stop = self._kopf_loop, self._kopf_stop
        if loop is not None and stop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)

    def join(self) -> None:
        """Returns when kopf has ended, or after some seconds if it does not end."""
        self._thread.join(STOP_SECONDS)

    def _keep_watching(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            cause: object = "it ended without an error"
            try:
                run_to_the_first_end(self._watch())
            except Exception as error:  # noqa: BLE001 — any has the same cure, and is logged below
                cause = f"{type(error).__name__}: {error}"
            if self._stopping.is_set():
                return
            self._loop.call_soon_threadsafe(self._note_ended)
            failures = 1 if time.monotonic() - started > LASTED_SECONDS else failures + 1
            delay = backoff_seconds(failures, longest=LONGEST_RESTART_SECONDS)
            metrics.WATCH_RESTARTS.inc()
            logger.error("Watching jobs starts again in %.1f s: %s", delay, cause)
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
        seconds = STOPPED_SECONDS if self._stopping.is_set() else KOPF_END_SECONDS
        await asyncio.wait([asyncio.create_task(kopf.run_tasks(tasks))], timeout=seconds)
        for task in done:
            task.result()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=5)
        async def login(**_: Any) -> kopf.AiohttpSession:
            connection = await _connection()
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=connection.as_ssl_context()),
                headers=connection.as_http_headers(),
            )
            ours: Any = KopfSession(session, self._list_for_kopf)
            return kopf.AiohttpSession(server=connection.server, aiohttp_session=ours)

        @kopf.on.event(kubernetes_names.GROUP, kubernetes_names.VERSION, kubernetes_names.PLURAL, registry=registry)
        async def job_event(event: Mapping[str, Any], **_: Any) -> None:
            metrics.WATCH_EVENTS.labels(kubernetes_names.PLURAL).inc()
            metrics.WATCH_LAST_EVENT.labels(kubernetes_names.PLURAL).set_to_current_time()
            self._loop.call_soon_threadsafe(self._tell, job_of(event), event["type"] == "DELETED")

        return registry

    def _tell(self, manifest: dict[str, Any], deleted: bool) -> None:
        with isolated(JOBS, manifest):
            self._sink.changed(manifest, deleted=deleted)


class _Uncompared(kopf.AnnotationsDiffBaseStorage):
    """Compares nothing, because each event is forwarded; kopf would copy each job for the comparison."""

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        """An empty essence: no field is compared."""
        return kopf.BodyEssence()


def _kopf_settings(settings: Settings) -> kopf.OperatorSettings:
    ours = kopf.OperatorSettings()
    ours.posting.enabled = False
    ours.networking.error_backoffs = _ForEver()
    ours.networking.enforce_retry_after = True
    ours.networking.request_timeout = 60
    ours.networking.connect_timeout = 10
    # Finite, so that a stream that is broken in an unforeseen way is replaced.
    ours.watching.server_timeout = 240
    ours.watching.client_timeout = 300
    # Never: the timer belongs to one stream and cancels the watcher. A stream that is left on 410 may stay alive with
    # its timer, which then ends the watch for good, without an error (nolar/kopf:kopf/_cogs/clients/watching.py).
    ours.watching.inactivity_timeout = math.inf
    ours.persistence.diffbase_storage = _Uncompared()
    ours.queueing.idle_timeout = IDLE_SECONDS
    # The right to list CRDs is cluster-wide; an operator for some namespaces does not have it.
    ours.scanning.disabled = bool(settings.watch_namespaces)
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
