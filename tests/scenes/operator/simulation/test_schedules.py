"""Random orders of events, crashes of the operator and faults of the API: the promises hold in every one of them.

A failure names its seed, and the seed makes the schedule: `play(Schedule(seed))` plays it again.
"""

import asyncio
import logging
from random import Random

import pytest
from _pytest.mark.structures import ParameterSet

from tests.operator.building import job
from tests.operator.simulation import operator, virtual_time
from tests.operator.simulation.api import Faults, Object, Server
from tests.operator.simulation.cluster import NODES, Cluster
from tests.operator.simulation.promises import JOBS, Promises
from tpujob_operator.controller import resync
from tpujob_operator.kube import errors
from tpujob_operator.observe import report_poller

TROUBLE_SECONDS = 120.0
REST_SECONDS = 900.0
"""The longest pause between restarts, twice, and a resync."""
QUIET_SECONDS = 100.0
NAME = "llama"
ELASTIC: Object = {
    "accelerator": "cpu:1x1",
    "slices": 2,
    "minSlices": 1,
    "shrinkAfterSeconds": 5,
    "checkpointDir": "/checkpoints",
    "resources": {"requests": {"cpu": "1"}},
}
"""A slice for each node."""
BATCH = 50


class Schedule:
    """One bad day: everything in it follows from the seed."""

    def __init__(self, seed: int, *, is_elastic: bool = False, saves: bool = False) -> None:
        self.is_elastic = is_elastic
        self.random = Random(seed)  # noqa: S311 — to be repeated, not to be secret
        self.server = Server()
        self.faults = Faults(self.random)
        self.cluster = Cluster(self.server, self.random, saves=saves)
        self.promises = Promises(self.server)
        self.defects: list[BaseException] = []

    async def run(self) -> None:
        """Trouble, then rest; what was broken is in `promises`."""
        world = asyncio.create_task(self.cluster.run())
        crashing = asyncio.create_task(self._operators())
        self._create()
        self._mood()
        ends = asyncio.get_running_loop().time() + TROUBLE_SECONDS
        while asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(self.random.uniform(0.05, 10))
            self.random.choice([self._edit, self._forget_history, self._mood, self._mood, self._touch_jobset])()
        self._calm()
        await asyncio.sleep(REST_SECONDS)
        settled = self.promises.status_writes
        await asyncio.sleep(QUIET_SECONDS)
        self.promises.check_rest(settled)
        for task in (world, crashing):
            task.cancel()
        await asyncio.gather(world, crashing, return_exceptions=True)

    async def _operators(self) -> None:
        """One process after the other, each killed at any moment; the last one stays."""
        while True:
            running = asyncio.create_task(operator.run(self.server, self.faults, self.defects.append))
            life = self.random.choice([0.02, 0.1, 1, 10, 60]) * self.random.uniform(0.5, 2)
            if asyncio.get_running_loop().time() > TROUBLE_SECONDS:
                await running
            try:
                await asyncio.wait([running], timeout=life)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            await asyncio.sleep(self.random.uniform(0, 5))

    def _create(self) -> None:
        shape: Object = ELASTIC if self.is_elastic else {}
        manifest = job(args=["0"], **shape, suspend=self.random.random() < 0.2)
        if self.server.get(JOBS, NAME) is None:
            self.server.create(JOBS, {**manifest, "metadata": {"name": NAME}})

    def _edit(self) -> None:
        """What a person does: suspend, resume, change, retry, delete the job or its JobSet."""
        found = self.server.get(JOBS, NAME)
        if found is None:
            self._create()
            return
        phase = (found.get("status") or {}).get("phase")
        what = self.random.choice(["suspend", "suspend", "resume", "resume", "change", "retry", "delete"])
        if what == "delete" and self.random.random() < 0.3:
            self.server.delete(JOBS, NAME)
        elif what == "delete" and self.random.random() < 0.3:
            self.server.update("jobsets", NAME, _being_deleted)
        elif what in ("suspend", "resume"):
            self.server.update(JOBS, NAME, lambda job: job["spec"].update(suspend=what == "suspend"))
        elif what == "change" and phase in (None, "Failed", "Suspended"):
            if phase is not None:
                self.promises.revived_on_purpose.add(found["metadata"]["uid"])
            self.server.update(JOBS, NAME, lambda job: job["spec"].update(args=[str(self.random.randrange(10**6))]))
        elif what == "retry" and phase in ("Failed", "Succeeded"):
            self.promises.revived_on_purpose.add(found["metadata"]["uid"])
            self.server.update(JOBS, NAME, lambda job: job["spec"].update(retry=(job["spec"].get("retry") or 0) + 1))

    def _touch_jobset(self) -> None:
        """Somebody writes to the JobSet and changes nothing that matters."""
        note = {"note": str(self.random.random())}
        self.server.update("jobsets", NAME, lambda found: found["metadata"]["annotations"].update(note))

    def _forget_history(self) -> None:
        self.server.forgotten = self.server.version
        self.server.history.clear()

    def _mood(self) -> None:
        """How bad it is for the next while."""
        random, faults = self.random, self.faults
        faults.refusals = random.choice([0, 0, 0.1, 0.5, 1.0])
        faults.lost_answers = random.choice([0, 0, 0.1, 0.3])
        faults.late = random.choice([0, 0, 0.1, 0.3])
        faults.watch_lag = random.choice([0.01, 0.05, 0.5, 5.0])
        faults.watch_errors = random.choice([0, 0, 0.1, 0.5])
        self.cluster.failures = random.choice([0, 0.1, 0.5])
        self.cluster.finishes = random.choice([0, 0, 0, 0.02])
        if self.is_elastic:
            self.cluster.cordoned = frozenset(random.choice([(), (), NODES[:1], NODES[1:], NODES]))

    def _calm(self) -> None:
        faults = self.faults
        faults.refusals = faults.lost_answers = faults.late = faults.watch_errors = 0
        faults.watch_lag = 0.05
        self.cluster.failures = self.cluster.finishes = 0
        self.cluster.cordoned = frozenset()


def _being_deleted(found: Object) -> None:
    found["metadata"].setdefault("deletionTimestamp", "now")


def play(schedule: Schedule) -> list[str]:
    """What a schedule broke."""
    with pytest.MonkeyPatch.context() as patch:
        # The jitter of the parts too, so that a seed is one schedule.
        for module in (errors, resync, report_poller):
            patch.setattr(module, "_random", schedule.random)
        virtual_time.run(schedule.run())
    return [f"{type(error).__name__}: {error}" for error in schedule.defects] + schedule.promises.broken


@pytest.fixture(autouse=True)
def quiet() -> None:
    """The faults are logged as they should be, and there are thousands."""
    logging.getLogger("tpujob_operator").setLevel(logging.CRITICAL)


def batches(seeds: int, always: int) -> list[ParameterSet]:
    """The first seed of each batch; those from `always` on are played by `make faults`."""
    return [pytest.param(first, marks=[pytest.mark.faults] * (first >= always)) for first in range(0, seeds, BATCH)]


def require_promises(first: int, **kind: bool) -> set[int]:
    """Plays a batch; the numbers of slices that JobSets were made with."""
    broken: dict[int, list[str]] = {}
    sizes: set[int] = set()
    for seed in range(first, first + BATCH):
        schedule = Schedule(seed, **kind)
        if found := play(schedule):
            broken[seed] = found
        sizes |= schedule.promises.sizes
    assert broken == {}
    return sizes


@pytest.mark.parametrize("first", batches(2000, always=400))
def test_promises_hold_in_random_schedules(first: int) -> None:
    require_promises(first)


@pytest.mark.parametrize("first", batches(250, always=100))
def test_promises_hold_while_slices_come_and_go(first: int) -> None:
    sizes = require_promises(first, is_elastic=True)
    assert sizes == {1, 2}, "or they would hold because nothing happens"


@pytest.mark.parametrize("first", batches(100, always=50))
def test_promises_hold_while_processes_save(first: int) -> None:
    require_promises(first, is_elastic=True, saves=True)
