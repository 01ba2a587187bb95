"""Leader election: of several operators only the holder of a Lease writes, for as long as it can be sure to hold it.

- The holder renews every `RETRY_SECONDS` and considers itself the holder until `SURE_SECONDS` after the start of its
  last successful renewal. Others take over `LEASE_SECONDS` after they last saw the Lease change. Each measures
  durations with its own monotonic clock, and none compares times with another machine.
- Every write checks `is_leader` first, so a process that was paused writes nothing when it wakes up.
- A process that finds its own name in the Lease was killed and started again: it offers the Lease to the others first,
  because a process that watched all the time knows more than one that has just started.
- On a stop signal it releases the Lease, and another process takes it within `RETRY_SECONDS`.
- Waiting processes watch, too, so the evidence of pods that are gone is not lost with the holder.

`kubernetes.aio.leaderelection` is not used: it does not release the Lease, ends at the first connection error, and has
no deadline for a request.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime

from tpujob_operator.base import metrics
from tpujob_operator.base.settings import Settings
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import LEASES, Storage
from tpujob_operator.kube.requests import Object

logger = logging.getLogger(__name__)

LEASE = "tpujob-operator"
LEASE_SECONDS = 10.0
SURE_SECONDS = 7.0
RETRY_SECONDS = 2.0
REQUEST_SECONDS = 4.0
OFFER_SECONDS = 3.0
"""How long the Lease is offered; another waiting process tries within `RETRY_SECONDS`."""


class Leadership:
    """Holds the Lease, or waits for it."""

    def __init__(self, storage: Storage, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """Stores the parameters; `run` starts the election.

        Args:
            storage: Reads and writes the Lease.
            settings: The namespace of the Lease, and the identity of this process.
            clock: Monotonic, in seconds.
        """
        self._storage = storage
        self._namespace = settings.namespace
        self._identity = settings.identity or socket.gethostname()
        self._clock = clock
        self._sure_until = float("-inf")
        self._seen: tuple[str, float] = ("", float("-inf"))
        self._led = False
        self._is_new = True
        self._offered_until = float("-inf")

    @property
    def is_leader(self) -> bool:
        """Whether this process may write now."""
        return self._clock() < self._sure_until

    async def run(self, elected: Callable[[], None]) -> None:
        """Tries to hold the Lease until cancelled; calls `elected` each time it is won, or was renewed too late."""
        while True:
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    await self.step()
            except (errors.ApiError, TimeoutError) as error:
                logger.warning("Lease %s/%s: %s", self._namespace, LEASE, error or "no answer")
            if self._led != self.is_leader:
                self._led = self.is_leader
                metrics.LEADER.set(self._led)
                logger.info("%s: %s", "Leads" if self._led else "Does not lead any more", self._identity)
                if self._led:
                    elected()
            await asyncio.sleep(RETRY_SECONDS)

    async def step(self) -> None:
        """Renews the Lease, or takes it if it is free.

        Raises:
            ApiError: It could not be read or written, for example because another client was faster.
        """
        began = self._clock()
        lease = await self._storage.get(LEASES, self._namespace, LEASE)
        if lease is None:
            await self._storage.create(LEASES, self._lease({}))
        else:
            version, last_changed_at = lease["metadata"]["resourceVersion"], began
            if self._seen[0] == version:
                last_changed_at = self._seen[1]
            self._seen = (version, last_changed_at)
            holder = lease["spec"].get("holderIdentity")
            if holder and holder != self._identity and began - last_changed_at < LEASE_SECONDS:
                self._sure_until = float("-inf")
                return
            if holder == self._identity and self._is_new:
                await self._storage.replace(LEASES, _given_back(lease))
                self._is_new, self._offered_until = False, began + OFFER_SECONDS
                return
            if not holder and began < self._offered_until:
                return
            await self._storage.replace(LEASES, self._lease(lease))
        self._is_new = False
        # If it was not sure for a while, it skipped reconciles: this counts as another election.
        self._led = self._led and self.is_leader
        self._sure_until = began + SURE_SECONDS

    async def give_back(self) -> None:
        """Releases the Lease if it is held, so that another process can take it at once."""
        if not self.is_leader:
            return
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                lease = await self._storage.get(LEASES, self._namespace, LEASE)
                if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                    self._sure_until = float("-inf")
                    await self._storage.replace(LEASES, _given_back(lease))
        except (errors.ApiError, TimeoutError) as error:
            logger.warning("Lease %s/%s not given back: %s", self._namespace, LEASE, error or "no answer")

    def _lease(self, before: Object) -> Object:
        """The Lease as this process holds it; with the resource version of the one that was read."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = before.get("spec", {})
        is_ours = spec.get("holderIdentity") == self._identity
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": before.get("metadata", {"name": LEASE, "namespace": self._namespace}),
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(LEASE_SECONDS),
                "acquireTime": spec.get("acquireTime", now) if is_ours else now,
                "renewTime": now,
                "leaseTransitions": (spec.get("leaseTransitions") or 0) + (0 if is_ours else 1),
            },
        }


def _given_back(lease: Object) -> Object:
    return {**lease, "spec": {**lease["spec"], "holderIdentity": None}}
