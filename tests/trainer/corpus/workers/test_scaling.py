"""Workers that are added or stopped in mid-run, by a clock at whose ticks every device finishes one unit."""

import threading

from tests.trainer.corpus.workers.test_engine import Numbers
from tpujob_trainer.corpus.workers.claims import Claims
from tpujob_trainer.corpus.workers.engine import Engine
from tpujob_trainer.corpus.workers.progress_index import ProgressIndex
from tpujob_trainer.corpus.workers.uploads import Scratch, Uploads
from tpujob_trainer.storage import open_bucket

UNITS = 120
END_TICKS = 3
"""In which some devices have nothing left to do."""


class Clock:
    """Ticks when every worker that is there computes, or has nothing to do."""

    def __init__(self):
        self.ticks = 0
        self.computing: set[str] = set()
        self.idle: set[str] = set()
        self.there: set[str] = set()
        self.changed = threading.Condition()

    def compute(self, worker):
        with self.changed:
            at = self.ticks
            self.computing.add(worker)
            self.idle.discard(worker)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.ticks > at)

    def has_nothing(self, worker):
        with self.changed:
            self.idle.add(worker)
            self.changed.notify_all()

    def leave(self, worker):
        with self.changed:
            self.there.discard(worker)
            self.changed.notify_all()

    def _can_tick(self):
        return not self.there or (self.computing and self.there <= self.computing | self.idle)

    def tick(self):
        """Whether a worker is still there."""
        with self.changed:
            assert self.changed.wait_for(self._can_tick, 60)
            self.ticks += bool(self.computing)
            self.computing.clear()
            self.changed.notify_all()
            return bool(self.there)


class Fleet:
    """Workers of one directory, each on a thread."""

    def __init__(self, folder):
        self.folder, self.clock = folder, Clock()
        self.computed: list[int] = []
        self.threads: list[threading.Thread] = []
        self.stops: dict[str, threading.Event] = {}

    def start(self, worker):
        self.clock.there.add(worker)
        self.stops[worker] = threading.Event()
        self.threads.append(threading.Thread(target=self._run, args=(worker,)))
        self.threads[-1].start()

    def run(self):
        while self.clock.tick():
            pass
        for thread in self.threads:
            thread.join()

    def _run(self, worker):
        fleet = self

        class Timed(Numbers):
            def compute(self, read):
                fleet.clock.compute(worker)
                fleet.computed.append(read)
                return read

        directory = str(self.folder / "out")
        objects = open_bucket(directory)
        scratch = Scratch(str(self.folder / worker), 1000, field="spec.trainer.extract.scratch")
        engine = Engine(
            objects,
            Claims(objects, worker),
            ProgressIndex(objects, worker, UNITS),
            Uploads(directory),
            scratch,
            worker=worker,
            units=UNITS,
            stop_requested=self.stops[worker].is_set,
            on_idle=lambda: self.clock.has_nothing(worker),
        )
        try:
            engine.run(Timed())
        finally:
            scratch.close()
            self.clock.leave(worker)


def _ticks(fleet, number):
    for _ in range(number):
        fleet.clock.tick()


def _done(tmp_path):
    return sorted(int(file.stem) for file in (tmp_path / "out" / "done").glob("*.json"))


def test_added_workers_shorten_the_rest_in_proportion(tmp_path):
    fleet = Fleet(tmp_path)
    fleet.start("a")
    fleet.start("b")
    _ticks(fleet, 20)
    fleet.start("c")
    fleet.start("d")
    fleet.run()
    assert _done(tmp_path) == list(range(UNITS))
    assert 40 <= fleet.clock.ticks <= 20 + (UNITS - 40) / 4 + END_TICKS, "two workers alone need 60"
    assert sorted(fleet.computed) == list(range(UNITS)), "a unit was computed twice"


def test_stopped_workers_lose_nothing(tmp_path):
    fleet = Fleet(tmp_path)
    for worker in "abcd":
        fleet.start(worker)
    _ticks(fleet, 10)
    for worker in "cd":
        fleet.stops[worker].set()
    fleet.run()
    assert _done(tmp_path) == list(range(UNITS))
    assert fleet.clock.ticks <= 11 + (UNITS - 40) / 2 + END_TICKS
    assert sorted(fleet.computed) == list(range(UNITS)), "a unit was computed twice"
