"""The loop of a worker: claim, read ahead, compute, pack and upload at the same time, mark as done.

- One thread claims and reads the next unit while the caller's thread computes; others pack and upload.
- What a worker has begun is bounded: one unit read ahead, one computed, a few on their way.
- A worker ends when every unit of the list is done, whoever has done it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tpujob_trainer.storage import Bucket
from tpujob_trainer.workers import choice, failures, results
from tpujob_trainer.workers.board import Board
from tpujob_trainer.workers.choice import DONE, FREE, TAKEN
from tpujob_trainer.workers.claims import Claims, Held
from tpujob_trainer.workers.results import UnitResult
from tpujob_trainer.workers.uploads import Scratch, Uploads

logger = logging.getLogger(__name__)

ON_THEIR_WAY = 3
"""Units that are packed and uploaded at a time."""
BOARD_SECONDS = 10.0
"""Between two looks at the board."""
IDLE_SECONDS = 1.0
"""Between two looks at the units of others, when none is free."""
LOOKED_AT = 16
"""Claimed units that are looked at each time."""
TELL_SECONDS = 30.0


@dataclass(frozen=True)
class PackedFile:
    """A file in the scratch folder."""

    path: Path
    rows: int


@dataclass(frozen=True)
class Packed:
    """A unit in files, and what its result says about it."""

    files: list[PackedFile]
    tokens: int
    skipped: dict[str, int]
    checksum: str
    statistics: dict[str, Any] = field(default_factory=dict)


class Work[Read, Computed](Protocol):
    """What is done with a unit. A repetition gives the same result."""

    def read(self, unit: int) -> Read:
        """The unit's input, on a thread of its own."""

    def compute(self, read: Read) -> Computed:
        """What the devices make of it, on the thread that called `Engine.run`."""

    def size(self, computed: Computed) -> int:
        """About the bytes of its files."""

    def pack(self, computed: Computed, folder: Path, name: str) -> Packed:
        """Its files, written into a folder under names that begin with `name`; on a thread of its own."""


@dataclass
class Tally:
    """What this worker has done since it started."""

    units: int = 0
    rows: int = 0
    tokens: int = 0
    bytes: int = 0
    taken_over: int = 0
    lost: int = 0
    """Units that another worker finished first."""


class Engine:
    """One worker's loop over the units of a list."""

    def __init__(
        self,
        objects: Bucket,
        claims: Claims,
        board: Board,
        uploads: Uploads,
        scratch: Scratch,
        *,
        worker: str,
        units: int,
        stop_requested: Callable[[], bool],
        on_progress: Callable[[Tally, np.ndarray], None] = lambda tally, states: None,
        chance: random.Random | None = None,
    ) -> None:
        """Nothing is claimed yet; `on_progress` gets what was done here, and the states of all units."""
        self._objects, self._claims, self._board = objects, claims, board
        self._uploads, self._scratch = uploads, scratch
        self._worker = worker
        self._stop_requested = stop_requested
        self._on_progress = on_progress
        self._chance = chance or random.Random(worker)  # noqa: S311 - spreads the workers out
        self._lock = threading.Lock()
        self._failed = threading.Event()
        self._after: int | None = None
        self._told = 0.0
        self.states = np.full(units, FREE, dtype=np.uint8)
        self.tally = Tally()

    def run(self, work: Work[Any, Any]) -> bool:
        """Works until every unit is done, or until it is asked to stop; whether every unit is done.

        Raises:
            TrainerError, OSError: what kept a unit from being finished; what was begun is released.
        """
        self._merge(self._board.first().done)
        slots = threading.BoundedSemaphore(ON_THEIR_WAY)
        with ThreadPoolExecutor(1, "read") as reader, ThreadPoolExecutor(ON_THEIR_WAY, "pack") as packers:
            try:
                sent: list[Future[None]] = []
                ahead = reader.submit(self._next, work)
                while (claimed := ahead.result()) is not None:
                    held, read, since = claimed
                    if self._stop_requested() or held.is_lost:
                        self._claims.release(held)
                        ahead = reader.submit(self._next, work)
                        continue
                    ahead = reader.submit(self._next, work)
                    computed = self._guarded(held, lambda read=read: work.compute(read))  # type: ignore[misc]
                    slots.acquire()
                    sent = [future for future in sent if not _raise_if_failed(future)]
                    sent.append(packers.submit(self._finish, work, held, computed, since, slots))
                for future in sent:
                    future.result()
            finally:
                self._failed.set()
                self._claims.close()
        self._tell(force=True)
        return bool((self.states == DONE).all())

    def _next(self, work: Work[Any, Any]) -> tuple[Held, Any, float] | None:
        """A unit and its input; None when there is nothing left to do here."""
        held = self._claim()
        if held is None:
            return None
        since = time.monotonic()
        return held, self._guarded(held, lambda: work.read(held.unit)), since

    def _claim(self) -> Held | None:
        while not (self._stop_requested() or self._failed.is_set()):
            listing = self._board.look(at_most_every_seconds=BOARD_SECONDS)
            if listing is not None:
                self._merge(listing.done)
            self._tell()
            with self._lock:
                unit = choice.next_unit(self.states, self._after, self._chance.random)
            if unit is not None:
                self._after = unit
                if (held := self._take(unit, is_known=False)) is not None:
                    return held
                continue
            taken = np.flatnonzero(self.states == TAKEN).tolist()
            if not taken:
                return None
            for unit in self._chance.sample(taken, min(LOOKED_AT, len(taken))):
                if not self._is_mine(unit) and (held := self._take(unit, is_known=True)) is not None:
                    return held
            self._failed.wait(IDLE_SECONDS)
        return None

    def _take(self, unit: int, *, is_known: bool) -> Held | None:
        held = self._claims.take(unit, is_known=is_known)
        if held is None:
            self._set(unit, TAKEN)
            return None
        # After the claim, and not before: whoever finishes a unit marks it first, and gives up its claim then.
        if results.is_done(self._objects, unit):
            self._claims.release(held)
            self._set(unit, DONE)
            return None
        self._set(unit, TAKEN)
        return held

    def _is_mine(self, unit: int) -> bool:
        return any(held.unit == unit and not held.is_lost for held in self._claims.held())

    def _finish(
        self, work: Work[Any, Any], held: Held, computed: Any, since: float, slots: threading.BoundedSemaphore
    ) -> None:
        try:
            self._guarded(held, lambda: self._pack_and_upload(work, held, computed, since))
        finally:
            slots.release()

    def _pack_and_upload(self, work: Work[Any, Any], held: Held, computed: Any, since: float) -> None:
        if held.is_lost or self._failed.is_set():
            self._give_up(held)
            return
        with self._scratch.room(work.size(computed)):
            packed = work.pack(computed, self._scratch.folder, held.token)
            files = tuple(
                self._uploads.upload(held, number, file.path, file.rows) for number, file in enumerate(packed.files)
            )
        result = UnitResult(
            unit=held.unit,
            rows=sum(file.rows for file in files),
            skipped=packed.skipped,
            tokens=packed.tokens,
            files=files,
            checksum=packed.checksum,
            statistics=packed.statistics,
            worker=self._worker,
            token=held.token,
            seconds=round(time.monotonic() - since, 3),
            taken_over_from=held.taken_over_from,
        )
        if not results.mark_done(self._objects, result):
            self._uploads.remove(files)
            self._give_up(held)
            self._set(held.unit, DONE)
            return
        self._claims.release(held)
        self._set(held.unit, DONE)
        with self._lock:
            self.tally.units += 1
            self.tally.rows += result.rows
            self.tally.tokens += result.tokens
            self.tally.bytes += result.num_bytes
            self.tally.taken_over += held.taken_over_from is not None

    def _give_up(self, held: Held) -> None:
        self._claims.release(held)
        with self._lock:
            self.tally.lost += 1

    def _guarded[T](self, held: Held, do: Callable[[], T]) -> T:
        """Runs a part of the work; a failure is written down, and ends the loop."""
        try:
            return do()
        except BaseException as error:
            with self._lock:
                is_first = not self._failed.is_set()
                self._failed.set()
            if is_first:
                failures.record(self._objects, self._worker, held.unit, error)
            self._claims.release(held)
            raise

    def _merge(self, done: np.ndarray) -> None:
        with self._lock:
            self.states[done] = DONE

    def _set(self, unit: int, state: int) -> None:
        with self._lock:
            if self.states[unit] != DONE:
                self.states[unit] = state

    def _tell(self, *, force: bool = False) -> None:
        self._on_progress(self.tally, self.states)
        if force or time.monotonic() - self._told > TELL_SECONDS:
            self._told = time.monotonic()
            tally = self.tally
            logger.info(
                "Units: done=%d of %d, here=%d rows=%d tokens=%d bytes=%d taken_over=%d lost=%d",
                int((self.states == DONE).sum()), len(self.states), tally.units, tally.rows, tally.tokens, tally.bytes,
                tally.taken_over, tally.lost,
            )  # fmt: skip


def _raise_if_failed(future: Future[None]) -> bool:
    """Whether it has ended; raises what it raised."""
    if not future.done():
        return False
    future.result()
    return True
