"""Data sets of the Hugging Face hub, read by several processes: real client libraries, only the server is here."""

import collections
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.harness.processes import REPOSITORY
from tests.trainer.data.data_files import write_parquet
from tests.trainer.data.stub_dataset_hub import STORAGE, StubDatasetHub
from tests.trainer.data.stub_hub import Fault
from tpujob_trainer import data

pytestmark = pytest.mark.processes

PROCESSES, ROWS, LENGTH, BATCHES = 4, 4, 64, 6
REPOSITORY_NAME = "owner/texts"
WAIT_SECONDS = 12
FAULTS = (
    Fault("status", 429, retry_after=str(WAIT_SECONDS)),
    Fault("status", 503),
    Fault("reset"),
    Fault("truncated"),
    Fault("short"),
)


class Hub(StubDatasetHub):
    """Misbehaves, when told to, at the first request of each host for each file, once in each way."""

    is_bad = False

    def __init__(self, folder):
        super().__init__(folder, self._fault)
        self.given: list[str] = []
        self._seen: set[tuple[str, str]] = set()

    def _fault(self, number, host, path):
        is_file = path.startswith(STORAGE)
        if not self.is_bad or not is_file or (host, path) in self._seen:
            return None
        self._seen.add((host, path))
        fault = FAULTS[len(self.given) % len(FAULTS)]
        self.given.append(fault.kind)
        return fault

    def commit_texts(self, number):
        folder = self.commit(REPOSITORY_NAME, number)
        (folder / "data").mkdir()
        for part in range(6):  # more than one page of a listing
            texts = [f"commit {number}, file {part}, row {row}: {'words ' * (row % 9)}" for row in range(60)]
            write_parquet(folder / "data" / f"train-{part}.parquet", texts)
        return folder


def pipe(stream):
    assert stream is not None
    return stream


class Attempt:
    """What the processes of one attempt found, and what they asked for."""

    def __init__(self, hub, config, folder, processes, environ):
        before = len(hub.requests)
        command = [sys.executable, "-m", "tests.multiprocess.reading_hub", json.dumps(config), str(folder)]
        running = [
            subprocess.Popen(
                [*command, *map(str, (process, processes, ROWS, LENGTH, BATCHES))],
                cwd=REPOSITORY,
                env=environ | {"HF_HUB_USER_AGENT_ORIGIN": f"host-{process}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for process in range(processes)
        ]
        told = pipe(running[0].stdout).readline()
        self.roots = json.loads(told)["roots"]
        for follower in running[1:]:
            pipe(follower.stdin).write(told)
            pipe(follower.stdin).flush()
        self.found = [json.loads(process.communicate(timeout=600)[0]) for process in running]
        self.requests = hub.requests[before:]
        self.state = np.concatenate([np.array(one["state"], np.int32) for one in self.found])
        np.save(folder / "state.npy", self.state)

    @property
    def inputs(self):
        """Of all batches, [batches, rows, length]."""
        return np.concatenate([np.array(one["inputs"]) for one in self.found], axis=1)

    def of(self, host, part):
        return [r for r in self.requests if re.match(host, r.host) and part in r.path]


class Scenario:
    """A run in two attempts. Between them the branch moves, and in the second one the storage misbehaves."""

    def __init__(self, folder, config, processes):
        environ = {**os.environ, "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_TELEMETRY": "1"}
        (folder / "run").mkdir()
        with Hub(folder / "hub") as hub:
            environ["HF_ENDPOINT"] = hub.url
            self.commit = hub.commit_texts(1)
            self.first = Attempt(hub, config, folder / "run", processes, environ)
            hub.commit_texts(2)
            hub.is_bad = True
            self.second = Attempt(hub, config, folder / "run", processes, environ)
            self.faults = hub.given


@pytest.fixture(scope="module")
def by_name(tmp_path_factory):
    return Scenario(tmp_path_factory.mktemp("by-name"), {"dataset": REPOSITORY_NAME}, PROCESSES)


@pytest.fixture(scope="module")
def by_path(tmp_path_factory):
    config = {"path": f"hf://datasets/{REPOSITORY_NAME}/data/*.parquet"}
    return Scenario(tmp_path_factory.mktemp("by-path"), config, 1)


@pytest.fixture(params=["by_name", "by_path"])
def scenario(request):
    return request.getfixturevalue(request.param)


def test_branch_that_moves_changes_nothing(scenario):
    """All batches of both attempts are those of the first commit's files, read from a disk."""
    config = data.DataConfig(path=str(scenario.commit / "data"))
    manifest = data.make_manifest(config, batch_size=ROWS)
    plan = data.plan_lanes(manifest, config, batch_size=ROWS, seed=0)
    with data.BatchLoader(manifest, data.load_tokenizer(config), plan, LENGTH, rows=range(ROWS)) as loader:
        batches = [next(loader) for _ in range(2 * BATCHES)]

    both = np.concatenate([scenario.first.inputs, scenario.second.inputs])
    np.testing.assert_array_equal(both, [batch.inputs for batch in batches])
    assert data.batches_digest(scenario.second.state) == data.batches_digest(batches[-1].state)


def test_run_is_pinned_to_the_commit_it_began_with(scenario):
    assert (
        scenario.first.roots
        == scenario.second.roots
        == [f"hf://datasets/{REPOSITORY_NAME}@{scenario.commit.name}/data"]
    )
    files = [r.path for a in (scenario.first, scenario.second) for r in a.requests if r.path.endswith(".parquet")]
    assert files
    assert all(f"/resolve/{scenario.commit.name}/" in path for path in files)


def test_data_is_listed_once_by_process_0(by_name):
    """The others, and all of the next attempt, ask for bytes of files and nothing else."""
    assert len(by_name.first.of("host-0", "/tree/")) <= 4, "two pages of files, and the folder above"
    assert by_name.first.of("host-[1-3]", "/api/datasets") == []
    assert by_name.second.of("host", "/api/datasets") == []


def test_files_are_read_in_ranges(scenario):
    for attempt in (scenario.first, scenario.second):
        reads = attempt.of("host", STORAGE)
        assert reads
        assert all(request.range for request in reads)
        whole = sum(file.stat().st_size for file in (scenario.commit / "data").iterdir())
        assert sum(one["bytes"] for one in attempt.found) < 3 * whole


def test_what_fails_is_asked_for_once_more_and_no_more(by_name):
    """As the hub counts: what a run without faults needs, and one request for each fault."""
    assert set(by_name.faults) == {fault.kind for fault in FAULTS}
    retries: collections.Counter[str] = collections.Counter()
    for process, found in enumerate(by_name.second.found):
        assert len(by_name.second.of(f"host-{process}", "/resolve/")) == found["requests"]
        retries.update(found["retries"])
    assert retries.total() == len(by_name.faults)
    assert retries["rate_limited"] == sum(r.status == 429 for r in by_name.second.requests)
    assert retries.keys() == {"rate_limited", "unavailable", "reset", "truncated"}


def test_host_that_is_told_to_wait_waits(by_name):
    for refused in (r for r in by_name.second.requests if r.status == 429):
        after = [r.at - refused.at for r in by_name.second.requests if r.host == refused.host and r.at > refused.at]
        # What was under way when the answer came does not count: it was there within a moment.
        assert [seconds for seconds in after if WAIT_SECONDS / 2 < seconds < WAIT_SECONDS] == []
