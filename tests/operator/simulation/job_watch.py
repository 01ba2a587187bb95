"""The watch of jobs as kopf keeps it, without its thread, its clock and its connection.

Kopf lists anew whenever a stream has ended; the list is the operator's own, see `JobWatch`.
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
                version = await list_all(self._storage, JOBS, None, "", self._sink)
                self._is_listed = True
                await self._follow(version)
            except errors.ApiError:
                await asyncio.sleep(self._faults.random.uniform(1, 15))

    def join(self) -> None:
        """There is no thread."""

    async def _follow(self, version: str) -> None:
        """The stream after a list."""
        async for kind, job in self._storage.watch(JOBS, None, selector="", version=version):
            if kind != "OPENED":
                self._sink.changed(job, deleted=kind == "DELETED")
