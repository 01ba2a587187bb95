"""The loop of a worker: claim and read ahead, compute, finish.

- One thread claims and reads the next unit while the caller's thread computes; others pack and upload.
- The units in flight are bounded: one is read ahead, one computed, a few packed and uploaded.
- A worker ends when every unit of the list is done, by any worker.
- The first failure ends the loop: uploads under way are completed, everything else is released.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tpujob_trainer.corpus.workers import failures, results
from tpujob_trainer.corpus.workers.claims import Claims, Lease
from tpujob_trainer.corpus.workers.finishing import Counters, Finisher, MemoryRelease
from tpujob_trainer.corpus.workers.progress_index import Listing, ProgressIndex
from tpujob_trainer.corpus.workers.states import DONE, FREE, TAKEN, UnitStates
from tpujob_trainer.corpus.workers.uploads import Scratch, Uploads
from tpujob_trainer.corpus.workers.work import Work
from tpujob_trainer.storage import Bucket

logger = logging.getLogger(__name__)

FINISHING = 3
"""Units that are packed and uploaded at a time."""
INDEX_SECONDS = 10.0
"""Between two reads of the index."""
IDLE_SECONDS = 1.0
"""Between two checks of the units of others, when none is free."""
LOOKED_AT = 16
"""Claimed units that are checked each time."""
LOG_SECONDS = 30.0


@dataclass(frozen=True)
class Claimed:
    """A unit of this worker, and its input."""

    held: Lease
    read: Any
    since: float
    """When it was claimed, by `time.monotonic`."""


class Engine:
    """One worker's loop over the units of a list."""

    def __init__(
        self,
        objects: Bucket,
        claims: Claims,
        index: ProgressIndex,
        uploads: Uploads,
        scratch: Scratch,
        *,
        worker: str,
        units: int,
        chips: int | None = None,
        chip_kind: str | None = None,
        stop_requested: Callable[[], bool],
        on_progress: Callable[[Counters, UnitStates, Listing | None], None] = lambda counters, states, listing: None,
        on_idle: Callable[[], None] = lambda: None,
        withdraw_damaged: Callable[[], object] = lambda: None,
    ) -> None:
        """Nothing is claimed yet.

        Args:
            objects: of the output directory.
            claims: of this worker.
            index: of finished units.
            uploads: into the output directory.
            scratch: for files on their way.
            worker: the name of this worker.
            units: length of the list.
            chips: number of this worker's chips.
            chip_kind: their kind.
            stop_requested: returns whether to stop; what is then being computed is finished first.
            on_progress: called with what was done here, what is known about all units, and the latest listing, before
                each claim and at the end.
            on_idle: called while this worker holds nothing and waits for the units of others.
            withdraw_damaged: called when all units seem to be done; removes the results of damaged files.
        """
        self._objects, self._claims, self._index = objects, claims, index
        self._finisher = Finisher(objects, uploads, scratch, worker=worker, chips=chips, chip_kind=chip_kind)
        self._worker = worker
        self._stop_requested, self._on_progress, self._on_idle = stop_requested, on_progress, on_idle
        self._withdraw_damaged = withdraw_damaged
        self._release_memory = MemoryRelease()
        self._chance = random.Random(worker)  # noqa: S311 - spreads the workers out
        self._failed = threading.Event()
        self._failing = threading.Lock()
        self._last: int | None = None
        self._logged = 0.0
        self.states = UnitStates(units)
        self.counters = self._finisher.counters

    def run(self, work: Work[Any, Any]) -> bool:
        """Works until every unit is done or a stop is requested; returns whether every unit is done.

        Raises:
            TrainerError, OSError: why a unit could not be finished.
        """
        self.states.set_done(self._index.first().done)
        try:
            with ThreadPoolExecutor(1, "read") as reader, ThreadPoolExecutor(FINISHING, "finish") as finishers:
                self._loop(work, reader, finishers)
                while not self._is_confirmed():
                    self._loop(work, reader, finishers)
        finally:
            # After the threads have ended, so that nothing is claimed afterwards.
            self._claims.close()
        self._on_progress(self.counters, self.states, self._index.latest)
        self._log()
        return self.states.num_done == len(self.states)

    def _is_confirmed(self) -> bool:
        """Whether nothing is left to do here: if all units seem to be done, a new listing has to confirm it."""
        if self._stop_requested() or self.states.num_done < len(self.states):
            return True
        self._withdraw_damaged()
        gone = {*self._index.confirmed().missing(), *self._index.take_lost()}
        return not self._reopen(sorted(gone))

    def _reopen(self, lost: list[int]) -> bool:
        """Frees the units whose results are gone, to be computed again; returns whether there are any."""
        if lost:
            shown = ", ".join(str(unit) for unit in lost[:10]) + (", …" if len(lost) > 10 else "")
            logger.warning("Units computed again, since their results in %s are gone: %s", results.FOLDER, shown)
            self.states.reopen(lost)
            self.counters.add_gone(len(lost))
        return bool(lost)

    def _loop(self, work: Work[Any, Any], reader: ThreadPoolExecutor, finishers: ThreadPoolExecutor) -> None:
        room = threading.BoundedSemaphore(FINISHING)
        sent: list[Future[None]] = []
        try:
            ahead = reader.submit(self._next, work)
            while (claimed := ahead.result()) is not None:
                ahead = reader.submit(self._next, work)
                if self._stop_requested() or claimed.held.is_lost:
                    self._release(claimed.held)
                    continue
                computed = self._compute(work, claimed)
                room.acquire()
                sent = [future for future in sent if not _has_ended(future)]
                sent.append(finishers.submit(self._finish, work, claimed, computed, room))
            for future in sent:
                future.result()
        except BaseException:
            self._failed.set()
            raise

    def _next(self, work: Work[Any, Any]) -> Claimed | None:
        """A unit and its input; None: there is nothing left to do here."""
        held = self._claim()
        if held is None:
            return None
        since = time.monotonic()
        try:
            return Claimed(held, work.read(held.unit), since)
        except BaseException as error:
            self._fail(held, error)
            raise

    def _compute(self, work: Work[Any, Any], claimed: Claimed) -> Any:
        try:
            return work.compute(claimed.read)
        except BaseException as error:
            self._fail(claimed.held, error)
            raise

    def _finish(self, work: Work[Any, Any], claimed: Claimed, computed: Any, room: threading.BoundedSemaphore) -> None:
        held = claimed.held
        try:
            if not self._failed.is_set() and self._finisher.finish(work, held, computed, claimed.since):
                self.states.set(held.unit, DONE)
            self._claims.release(held)
        except BaseException as error:
            self._fail(held, error)
            raise
        finally:
            room.release()

    def _claim(self) -> Lease | None:
        """The lease of some unit; waits while others hold all that are left. None: there is nothing to do."""
        while not (self._stop_requested() or self._failed.is_set()):
            self._look_around()
            unit = self.states.next_free(self._last, self._chance.random)
            if unit is not None:
                self._last = unit
                if (held := self._take(unit, is_known=False)) is not None:
                    return held
                continue
            taken = self.states.taken()
            if not taken:
                return None
            if (held := self._take_one_of(taken)) is not None:
                return held
            if not self._claims.held():
                self._on_idle()
            self._failed.wait(IDLE_SECONDS)
        return None

    def _look_around(self) -> None:
        self._release_memory()
        listing = self._index.look(at_most_every_seconds=INDEX_SECONDS)
        if listing is not None:
            self.states.set_done(listing.done)
            self._reopen(self._index.take_lost())
        self._on_progress(self.counters, self.states, listing)
        if time.monotonic() - self._logged > LOG_SECONDS:
            self._log()

    def _take_one_of(self, taken: list[int]) -> Lease | None:
        """The lease of a unit that another worker had: it was finished or released, or has lapsed."""
        mine = {held.unit for held in self._claims.held() if not held.is_lost}
        for unit in self._chance.sample(taken, min(LOOKED_AT, len(taken))):
            if unit not in mine and (held := self._take(unit, is_known=True)) is not None:
                return held
        return None

    def _take(self, unit: int, *, is_known: bool) -> Lease | None:
        held = self._claims.take(unit, is_known=is_known)
        self.states.set(unit, TAKEN)
        if held is None:
            return None
        # After the claim, not before: a worker that finishes a unit marks it as done before it releases its claim.
        if results.is_done(self._objects, unit):
            self._claims.release(held)
            self.states.set(unit, DONE)
            return None
        return held

    def _release(self, held: Lease) -> None:
        """Releases a unit that was read but is not computed: this worker has to stop, or another one has the unit."""
        self._claims.release(held)
        if held.is_lost:
            self.counters.add_lost()
        else:
            self.states.set(held.unit, FREE)

    def _fail(self, held: Lease, error: BaseException) -> None:
        """Records the first failure, releases the unit, and ends the loop."""
        with self._failing:
            is_first = not self._failed.is_set()
            self._failed.set()
        if is_first:
            failures.record(self._objects, self._worker, held.unit, error)
        self._claims.release(held)

    def _log(self) -> None:
        self._logged = time.monotonic()
        counters = self.counters
        logger.info(
            "Units: done=%d of %d, here=%d rows=%d tokens=%d bytes=%d taken_over=%d lost=%d",
            self.states.num_done, len(self.states), counters.units, counters.rows, counters.tokens, counters.bytes,
            counters.taken_over, counters.lost,
        )  # fmt: skip


def _has_ended(future: Future[None]) -> bool:
    """Whether it has ended; raises what it raised."""
    if not future.done():
        return False
    future.result()
    return True
