"""The watch of jobs as kopf keeps it, without its thread, its clock and its connection.

Kopf lists anew whenever a stream has ended, and tells nothing of what was deleted in between. The operator's own list
follows kopf's start alone, see `JobWatch`.
"""

import asyncio

from tests.operator.simulation.api import Faults
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import JOBS, Storage
from tpujob_operator.kube.list_watch import Sink, list_all


class SimulatedJobWatch:
    """Tells a sink of every job."""

    def __init__(self, storage: Storage, faults: Faults, sink: Sink) -> None:
        self._storage = storage
        self._faults = faults
        self._sink = sink
        self._is_listed = False

    def is_live(self, namespace: str) -> bool:
        """Like kopf, it does not say that its stream is broken."""
        return self._is_listed

    async def run(self) -> None:
        while True:
            try:
                if not self._is_listed:
                    await list_all(self._storage, JOBS, None, "", self._sink)
                    self._is_listed = True
                await self._follow()
            except errors.ApiError:
                await asyncio.sleep(self._faults.random.uniform(1, 15))

    def join(self) -> None:
        """There is no thread."""

    async def _follow(self) -> None:
        """One list and the stream after it."""
        version = ""
        async for page in self._storage.pages(JOBS, None, ""):
            for job in page["items"]:
                self._sink.changed(job, deleted=False)
            version = page["metadata"]["resourceVersion"]
        async for kind, job in self._storage.watch(JOBS, None, selector="", version=version):
            if kind != "OPENED":
                self._sink.changed(job, deleted=kind == "DELETED")
