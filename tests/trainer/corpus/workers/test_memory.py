"""What a worker keeps in memory does not depend on how many units it has done."""

import ctypes
import dataclasses
import itertools
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import tpujob_trainer
from tests.trainer.corpus.workers.test_engine import Numbers, engine  # noqa: F401 - a fixture
from tpujob_trainer.corpus.workers import finishing
from tpujob_trainer.corpus.workers.results import OutputFile, UnitResult
from tpujob_trainer.tasks.batch.worker import _Figures
from tpujob_trainer.telemetry.report import Report

PIECE, PIECES = 64 << 10, 2048
"""Smaller than what glibc maps for itself and unmaps at once (128 KiB at first)."""


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc keeps arenas")
def test_freed_memory_is_given_back():
    c = ctypes.CDLL(None)
    c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    pieces = [c.malloc(PIECE) for _ in range(PIECES)]
    for piece in pieces:
        ctypes.memset(piece, 1, PIECE)
    for piece in pieces[:-1]:  # the last one keeps the arena from shrinking by itself
        c.free(piece)
    before = _resident_bytes()
    finishing.release_memory()
    assert before - _resident_bytes() > PIECE * PIECES / 2
    c.free(pieces[-1])


def test_memory_is_released_once_in_a_while(monkeypatch):
    now, trimmed = [0.0], []
    monkeypatch.setattr(finishing, "release_memory", lambda: trimmed.append(now[0]))
    release = finishing.MemoryRelease(every_seconds=30, clock=lambda: now[0])
    for now[0] in (100, 110, 129, 130, 131, 200):
        release()
    assert trimmed == [100, 130, 200]


def test_worker_keeps_nothing_of_its_units(engine):  # noqa: F811
    """A unit that leaves behind as much as a number is noticed."""
    taken = []
    reads = itertools.count()

    class Watched(Numbers):
        def read(self, unit):
            if next(reads) in (100, 900):
                taken.append(_own_bytes())
            return unit

    worker = engine("a", units=1000)
    worker._on_progress = _Figures(Report(), np.ones(1000, np.int64))
    _fill_free_lists()
    tracemalloc.start()
    try:
        worker.run(Watched())
    finally:
        tracemalloc.stop()
    after_hundred, after_nine_hundred = taken
    assert after_nine_hundred - after_hundred < 800 * 16


def _fill_free_lists() -> None:
    """Python keeps 2000 tuples of each short length for later (Objects/tupleobject.c)."""
    for kind in (UnitResult, OutputFile):
        for _ in range(2000):
            dataclasses.fields(kind)


def _own_bytes() -> int:
    """Of objects that lines of workers have made and that are still there; not of threads that other tests left."""
    trainer = Path(tpujob_trainer.__file__).parent
    ours = [
        tracemalloc.Filter(inclusive=True, filename_pattern=f"{trainer}/{room}/*") for room in ("corpus", "tasks/batch")
    ]
    found = tracemalloc.take_snapshot().filter_traces(ours)
    return sum(each.size for each in found.traces)
