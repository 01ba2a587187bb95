"""The progress index: one listing of the finished units, made by one worker at a time and read by all (`board.json`).

Workers that start together, and workers that look for work, read one small object. A worker that finds it unchanged
for a while announces a listing in it; the worker whose announcement succeeds makes the listing. If that worker dies,
the object stops changing, and the next worker does the same.
"""

import base64
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tpujob_trainer.corpus.workers import failures, results
from tpujob_trainer.corpus.workers.claims import FOLDER as CLAIMS
from tpujob_trainer.corpus.workers.claims import Sightings
from tpujob_trainer.storage import Bucket
from tpujob_trainer.values.json_object import json_object

logger = logging.getLogger(__name__)

NAME = "board.json"
OLD_SECONDS = 20.0
"""An index that has not changed for this long is listed again by the worker that reads it."""
FIRST_WAIT_SECONDS = 30.0
"""How long to wait at the start for the first listing of another worker."""
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Listing:
    """A listing that one worker made."""

    done: np.ndarray
    """bool [units]"""
    claimed: int
    """Units that were claimed."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """How often a unit was not finished, by cause."""

    def missing(self) -> list[int]:
        """The units that are not done."""
        return [int(unit) for unit in np.flatnonzero(~self.done)]


class ProgressIndex:
    """The index, as one worker sees it."""

    def __init__(
        self,
        objects: Bucket,
        worker: str,
        units: int,
        *,
        old_seconds: float = OLD_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Nothing is read yet."""
        self._objects = objects
        self._worker = worker
        self._units = units
        self._old_seconds = old_seconds
        self._clock = clock
        self._wait = wait
        self._sightings = Sightings()
        self._generation: bytes | None = None
        self._looked = -float("inf")
        self._announced = 0
        self.latest: Listing | None = None
        self._lost: set[int] = set()
        self.listings = 0
        """Number of listings that this worker made."""

    def first(self) -> Listing:
        """A listing that was made after this worker or another one started; waits for it."""
        until = self._clock() + FIRST_WAIT_SECONDS
        while (found := self.look()) is None:
            if self._clock() > until:  # its author is very slow, or dead
                return self._list()
            self._wait(POLL_SECONDS)
        return found

    def confirmed(self) -> Listing:
        """A listing that is made now and written to the index: for a final check."""
        return self._list(self._generation)

    def take_lost(self) -> list[int]:
        """Units that were done in a listing but not in a later one, ascending; each is returned once."""
        lost, self._lost = sorted(self._lost), set()
        return lost

    def look(self, *, at_most_every_seconds: float = 0.0) -> Listing | None:
        """The latest listing, made now if the last one is old; None: the first one is under way."""
        if self._clock() - self._looked < at_most_every_seconds:
            return self.latest
        self._looked = self._clock()
        found = self._objects.look(NAME)
        if found is None:
            generation = self._objects.create(NAME, self._content(None))
            return self.latest if generation is None else self._list(generation)
        if found.version != self._generation:
            self._generation = found.version
            self.latest = self._parsed(found.data) or self.latest
        unchanged_seconds = self._sightings.unchanged_seconds(NAME, found.version, self._clock())
        if unchanged_seconds >= self._old_seconds or (not self.listings and self._is_of_predecessor(found.data)):
            announced = self._objects.replace(NAME, self._content(self.latest), version=found.version)
            if announced is not None:
                return self._list(announced)
        return self.latest

    def _is_of_predecessor(self, content: bytes) -> bool:
        """Whether this worker wrote the index before it was started again: how old the index is, it cannot tell."""
        try:
            author = str(json_object(content).get("by"))
        except ValueError:
            return False
        if self._worker.count("-") < 2 or author == self._worker:
            return False
        return author.rpartition("-")[0] == self._worker.rpartition("-")[0]

    def _list(self, announced: bytes | None = None) -> Listing:
        self.listings += 1
        done = np.zeros(self._units, dtype=bool)
        done[results.units_in(self._objects.names(results.FOLDER), self._units)] = True
        failed = failures.counts(self._objects.names(failures.FOLDER))
        made = Listing(done, len(self._objects.names(CLAIMS)), failed)
        if self.latest is not None:
            self._lost |= {int(unit) for unit in np.flatnonzero(self.latest.done & ~done)}
        if announced is not None:
            self._generation = self._objects.replace(NAME, self._content(made), version=announced)
            if self._generation is not None:
                self._sightings.unchanged_seconds(NAME, self._generation, self._clock())
        self.latest = made
        return made

    def _content(self, listing: Listing | None) -> bytes:
        self._announced += 1
        text: dict[str, object] = {"by": self._worker, "number": self._announced, "units": self._units}
        if listing is not None:
            done = base64.b64encode(np.packbits(listing.done).tobytes()).decode()
            text |= {"done": done, "claimed": listing.claimed, "failures": dict(listing.failures)}
        return json.dumps(text).encode()

    def _parsed(self, content: bytes) -> Listing | None:
        """The listing in the index; None: it has none yet, or is damaged, and is listed again when it is old."""
        try:
            values = json_object(content)
            if "done" not in values:
                return None
            bits = np.frombuffer(base64.b64decode(values["done"]), dtype=np.uint8)
            done = np.unpackbits(bits)[: self._units].reshape(self._units).astype(bool)
            return Listing(done, int(values["claimed"]), dict(values.get("failures") or {}))
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            logger.warning("%s is damaged, and listed again: %s", NAME, error)
            return None
