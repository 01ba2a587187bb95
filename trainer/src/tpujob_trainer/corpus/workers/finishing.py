"""Finishes a unit: packs it into files, uploads them, marks it as done. Not on the thread that computes.

glibc has memory arenas for threads, up to eight for each core, and keeps what is freed in the middle of one. A worker
with a bucket has a dozen threads: over thousands of units it needs no more memory, but its process grows.
"""

import ctypes
import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tpujob_trainer.corpus.workers import results
from tpujob_trainer.corpus.workers.claims import Lease
from tpujob_trainer.corpus.workers.results import OutputFile, UnitResult
from tpujob_trainer.corpus.workers.uploads import Scratch, Uploads
from tpujob_trainer.corpus.workers.work import Packed, Work
from tpujob_trainer.storage import Bucket

TRIM_SECONDS = 30.0


def release_memory() -> None:
    """Returns free pages to the system; does nothing if the C library is not glibc.

    It takes some milliseconds for each 100 MB (https://man7.org/linux/man-pages/man3/malloc_trim.3.html).
    """
    if sys.platform == "linux" and (found := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        found(ctypes.c_size_t(0))


class MemoryRelease:
    """Releases memory at most once in an interval."""

    def __init__(self, *, every_seconds: float = TRIM_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        """The first call releases memory."""
        self._every_seconds, self._clock = every_seconds, clock
        self._trimmed = -float("inf")

    def __call__(self) -> None:
        """Releases memory, unless the last release is less than an interval ago."""
        if self._clock() - self._trimmed >= self._every_seconds:
            release_memory()
            self._trimmed = self._clock()


logger = logging.getLogger(__name__)


@dataclass
class Counters:
    """Counters of what this worker has done since it started."""

    units: int = 0
    rows: int = 0
    tokens: int = 0
    bytes: int = 0
    taken_over: int = 0
    """Units whose first worker had gone silent."""
    lost: int = 0
    """Units that another worker took over from this one, or finished first."""
    not_finite: int = 0
    """Values of the units."""
    gone: int = 0
    """Units that were done, but whose results were gone."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, result: UnitResult) -> None:
        """Counts a unit whose result is this worker's."""
        with self._lock:
            self.units += 1
            self.rows += result.rows
            self.tokens += result.tokens
            self.bytes += result.num_bytes
            if result.not_finite and not self.not_finite:
                logger.warning(
                    "Unit %d: %d values are not finite, and perhaps some of later units; float16 ends at 65504, "
                    "bfloat16 does not: set it as extract.dtype, in another directory", result.unit, result.not_finite
                )  # fmt: skip
            self.not_finite += result.not_finite
            self.taken_over += result.taken_over_from is not None

    def add_gone(self, units: int) -> None:
        """Counts units whose results were gone."""
        with self._lock:
            self.gone += units

    def add_lost(self) -> None:
        """Counts a unit that another worker finished in the end."""
        with self._lock:
            self.lost += 1


class Finisher:
    """Finishes the units of one worker."""

    def __init__(
        self,
        objects: Bucket,
        uploads: Uploads,
        scratch: Scratch,
        *,
        worker: str,
        chips: int | None = None,
        chip_kind: str | None = None,
    ) -> None:
        """Nothing is written yet."""
        self._objects, self._uploads, self._scratch, self._worker = objects, uploads, scratch, worker
        self._chips, self._chip_kind = chips, chip_kind
        self.counters = Counters()

    def finish(self, work: Work[Any, Any], held: Lease, computed: Any, since: float) -> bool:
        """Finishes a unit; returns whether it is done, by this worker or another one. False: its lease was lost before.

        Args:
            work: the task of the unit.
            held: its lease.
            computed: what `work.compute` returned.
            since: when it was claimed, by `time.monotonic`.

        Raises:
            ScratchFullError: the local disk is full.
            OSError: storage has failed for too long.
        """
        if held.is_lost:
            self.counters.add_lost()
            return False
        with self._scratch.room(work.size(computed)):
            with self._scratch.writing():
                packed = work.pack(computed, self._scratch.folder, held.token)
            files = tuple(
                self._uploads.upload(held, number, file.path, file.rows) for number, file in enumerate(packed.files)
            )
        result = self._result(held, packed, files, since)
        if results.mark_done(self._objects, result):
            self.counters.add(result)
        else:
            logger.info("Unit %d: another worker has finished it first; its result counts", held.unit)
            self._uploads.remove(files)
            self.counters.add_lost()
        return True

    def _result(self, held: Lease, packed: Packed, files: tuple[OutputFile, ...], since: float) -> UnitResult:
        return UnitResult(
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
            chips=self._chips,
            chip_kind=self._chip_kind,
            flops=packed.flops,
        )
