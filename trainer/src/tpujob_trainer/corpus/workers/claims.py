"""Leases on units, `claims/<unit>`: created if absent, renewed, and taken over once they have lapsed.

- A lease has lapsed when its object has not changed for a while by the clock of the worker that checks it. No two
  clocks are compared, so that hosts whose clocks differ by minutes agree.
- Every renewal writes different bytes, conditional on the last ones of the same holder: a holder that was frozen finds
  its lease changed, and knows that it has lost the unit.
- A damaged one counts as another worker's, and lapses.
- A lease only avoids duplicate work. The object `done/<unit>.json` alone determines a unit's result.
"""

import itertools
import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tpujob_contract.typed import object_in
from tpujob_trainer.storage import Bucket
from tpujob_trainer.storage import errors as storage_errors

logger = logging.getLogger(__name__)

FOLDER = "claims/"
RENEW_SECONDS = 10.0
LAPSE_SECONDS = 45.0


@dataclass
class Lease:
    """A lease of this worker."""

    unit: int
    token: str
    """Identifies this lease of the unit, and is in the names of its files."""
    generation: bytes
    taken_over_from: str | None = None
    """The worker whose lease had lapsed, if one had."""
    is_lost: bool = False
    """Whether another worker has taken it over."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Sightings:
    """When each object was first seen in its present version, by the reader's clock."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[bytes, float]] = {}

    def unchanged_seconds(self, name: str, generation: bytes, now: float) -> float:
        """How long the object is known to be unchanged, in seconds."""
        before = self._seen.get(name)
        if before is None or before[0] != generation:
            self._seen[name] = (generation, now)
            return 0.0
        return now - before[1]

    def forget(self, name: str) -> None:
        """Forgets an object that is gone."""
        self._seen.pop(name, None)


class Claims:
    """The leases of one worker; a thread renews them."""

    def __init__(
        self,
        objects: Bucket,
        worker: str,
        *,
        folder: str = FOLDER,
        renew_seconds: float = RENEW_SECONDS,
        lapse_seconds: float = LAPSE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is held yet.

        Args:
            objects: of the output directory.
            worker: the name of this worker, for people.
            folder: of the leases.
            renew_seconds: between two renewals; a few of them fit into `lapse_seconds`.
            lapse_seconds: without a change after which a lease of another worker is taken over.
            clock: seconds, monotonic.
        """
        self._objects = objects
        self._worker = worker
        self._host = socket.gethostname()
        self._folder = folder
        self._renew_seconds = renew_seconds
        self._lapse_seconds = lapse_seconds
        self._clock = clock
        self._sightings = Sightings()
        self._beats = itertools.count()
        self._held: dict[int, Lease] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="claims", daemon=True)
        self._renewer.start()

    def take(self, unit: int, *, is_known: bool = False) -> Lease | None:
        """The lease of a unit; None: another worker has it.

        Args:
            unit: its number.
            is_known: whether another worker is known to have had it: then it is read before it is created.

        Raises:
            OSError: storage cannot be reached.
        """
        token = secrets.token_hex(4)
        name = self._name(unit)
        if not is_known and (made := self._objects.create(name, self._record(token))) is not None:
            return self._holding(Lease(unit, token, made))
        found = self._objects.look(name)
        if found is None:
            self._sightings.forget(name)
            made = self._objects.create(name, self._record(token))
            return None if made is None else self._holding(Lease(unit, token, made))
        if self._sightings.unchanged_seconds(name, found.version, self._clock()) < self._lapse_seconds:
            return None
        made = self._objects.replace(name, self._record(token), version=found.version)
        if made is None:
            return None
        self._sightings.forget(name)
        before = holder(found.data)
        logger.warning("Unit %d: the lease of %s has lapsed, and is taken over", unit, before)
        return self._holding(Lease(unit, token, made, taken_over_from=before))

    def release(self, held: Lease) -> bool:
        """Releases a lease, so that another worker can have the unit at once; a lost one stays as it is.

        Returns:
            Whether storage answered; otherwise the lease will lapse.
        """
        with self._lock:
            self._held.pop(held.unit, None)
        with held.lock:
            if held.is_lost:
                return True
            try:
                self._delete(held)
            except OSError as error:
                logger.debug("Cannot release unit %d, it will lapse: %s", held.unit, storage_errors.brief(error))
                return False
            return True

    def _delete(self, held: Lease) -> None:
        if self._objects.delete(self._name(held.unit), version=held.generation):
            return
        found = self._objects.look(self._name(held.unit))
        if found is not None and object_in(found.data).get("token") == held.token:
            self._objects.delete(self._name(held.unit), version=found.version)  # a renewal whose answer did not arrive

    def close(self) -> None:
        """Releases all leases; once storage does not answer, the rest is left to lapse."""
        self._closed.set()
        for held in self.held():
            if not self.release(held):
                break

    def held(self) -> list[Lease]:
        """The leases of this worker."""
        with self._lock:
            return list(self._held.values())

    def renew(self) -> None:
        """Renews every lease once."""
        for held in self.held():
            with held.lock:
                self._renew_one(held)

    def _renew_one(self, held: Lease) -> None:
        with self._lock:
            if held.is_lost or self._held.get(held.unit) is not held:
                return
        try:
            made = self._objects.replace(self._name(held.unit), self._record(held.token), version=held.generation)
        except OSError as error:
            logger.debug("Cannot renew the lease of unit %d: %s", held.unit, storage_errors.brief(error))
            return
        if made is not None:
            held.generation = made
            return
        found = self._objects.look(self._name(held.unit))
        if found is not None and object_in(found.data).get("token") == held.token:
            held.generation = found.version  # an earlier renewal whose answer did not arrive
            return
        held.is_lost = True
        logger.warning(
            "Unit %d: this worker was away for too long; %s has it now",
            held.unit,
            holder(found.data) if found else "nobody",
        )

    def _renew(self) -> None:
        while not self._closed.wait(self._renew_seconds):
            try:
                self.renew()
            except OSError as error:
                logger.debug("Cannot renew leases: %s", storage_errors.brief(error))

    def _holding(self, held: Lease) -> Lease:
        with self._lock:
            self._held[held.unit] = held
        return held

    def _name(self, unit: int) -> str:
        return f"{self._folder}{unit_name(unit)}"

    def _record(self, token: str) -> bytes:
        record = {"worker": self._worker, "host": self._host, "token": token, "beat": next(self._beats)}
        return json.dumps(record).encode()


def holder(content: bytes) -> str:
    """The worker that holds a lease, from its content."""
    return str(object_in(content).get("worker", "an unknown worker"))


def unit_name(unit: int) -> str:
    """The unit as a part of names, padded so that names sort like numbers."""
    return f"{unit:08d}"


SETUP = "setup/"
POLL_SECONDS = 0.5


def once(
    objects: Bucket,
    worker: str,
    name: str,
    make: Callable[[], bytes],
    *,
    renew_seconds: float = RENEW_SECONDS,
    lapse_seconds: float = LAPSE_SECONDS,
    wait: Callable[[float], object] = time.sleep,
) -> bytes:
    """What `make` returned, in this worker or another one; if that worker dies, another one calls it.

    Args:
        objects: of the output directory.
        worker: the name of this worker.
        name: of what is made.
        make: makes it; called by one worker, and again only if that one dies.
        renew_seconds: as in `Claims`.
        lapse_seconds: as in `Claims`.
        wait: waits for the given seconds.
    """
    made = f"{SETUP}{name}.json"
    if (found := objects.look(made)) is not None:
        return found.data
    claims = Claims(objects, worker, folder=f"{SETUP}{name}-", renew_seconds=renew_seconds, lapse_seconds=lapse_seconds)
    try:
        while (found := objects.look(made)) is None:
            if (held := claims.take(0)) is None:
                wait(POLL_SECONDS)
                continue
            if (found := objects.look(made)) is None:
                objects.create(made, make())
            claims.release(held)
        return found.data
    finally:
        claims.close()


def next_name(objects: Bucket, name: str) -> str:
    """A name for `once`, the same for all workers that start before one of them has made it.

    So what is made at the end of a run is made once in the run, and again in the next one.
    """
    return f"{name}-{sum(each.endswith('.json') for each in objects.names(f'{SETUP}{name}-'))}"
