"""Data on a storage that fails: what is asked of it, how often, and that the batches are the same in the end."""

import collections
import concurrent.futures
import random
import threading
import time

import fsspec
import pytest

from tests.trainer.data.parquet_files import BYTES, raw, write_numbered
from tests.trainer.data.stub_hub import Fault, StubHub
from tpujob_trainer.data import BatchLoader, DataConfig, make_manifest, plan_lanes, read_manifest, write_manifest
from tpujob_trainer.storage import remote
from tpujob_trainer.storage.read_meter import METER, ReadMeter
from tpujob_trainer.storage.remote import RemoteFile
from tpujob_trainer.storage.retrying import Retrying
from tpujob_trainer.values.errors import NotFoundError, TrainerError

MISBEHAVIOUR = {
    "429": Fault("status", 429, retry_after="1"),
    "503": Fault("status", 503),
    "reset": Fault("reset"),
    "truncated": Fault("truncated"),
    "short": Fault("short"),
}


def quick(meter=METER, **limits):
    """Repeats soon: the growth of delays has tests of its own, with a clock that need not be waited for."""

    def wait(seconds):
        threading.Event().wait(min(seconds, 0.02))

    return Retrying(wait=wait, meter=meter, **limits)


@pytest.fixture
def folder(tmp_path):
    write_numbered(tmp_path / "data", [[60, 50], [40, 30]], width=100)
    return tmp_path


def batches(path, count=12):
    config = DataConfig(path=path)
    manifest = make_manifest(config, batch_size=4)
    plan = plan_lanes(manifest, config, batch_size=4, seed=1)
    with BatchLoader(manifest, BYTES, plan, 64, rows=range(4), prefetch=2) as loader:
        return raw([next(loader) for _ in range(count)])


@pytest.mark.parametrize("kind", ["503", "reset", "truncated", "short"])
def test_batches_are_the_same_over_a_bad_storage(folder, monkeypatch, kind):
    monkeypatch.setattr(remote, "RETRYING", quick(limit_seconds=20))
    fault = MISBEHAVIOUR[kind]

    given = random.Random(3)  # noqa: S311
    faults = []

    def some(number, host, path):
        if given.random() < 0.3 and (kind in {"503", "reset"} or path.endswith(".parquet")):
            faults.append(path)
            return fault
        return None

    with StubHub(folder, some) as hub:
        there = batches(f"{hub.url}/data/*.parquet")

    assert there == batches(str(folder / "data" / "*.parquet"))
    assert len(faults) >= 3


def test_one_request_is_one_range(folder):
    path = next((folder / "data").iterdir())
    with StubHub(folder) as hub:
        filesystem, _ = fsspec.core.url_to_fs(hub.url)
        file = RemoteFile(filesystem, f"{hub.url}/data/{path.name}", path.stat().st_size, meter=ReadMeter())
        file.seek(10)
        assert file.read(20) == path.read_bytes()[10:30]
        file.seek(-8, 2)
        assert file.read() == path.read_bytes()[-8:]
        assert file.read() == b""
        methods = [request.method for request in hub.requests]

    assert methods == ["GET", "GET"]


def test_file_that_is_not_there_is_asked_for_once(folder):
    with StubHub(folder) as hub:
        with pytest.raises(NotFoundError, match=r"nothing.parquet"):
            make_manifest(DataConfig(path=f"{hub.url}/data/nothing.parquet"))
        assert len(hub.requests) <= 3


def test_processes_that_are_told_ask_for_no_listing(folder):
    with StubHub(folder) as hub:
        config = DataConfig(path=f"{hub.url}/data")
        manifest = make_manifest(config, batch_size=4)
        write_manifest(manifest, str(folder / "run"))
        before = len(hub.requests)
        told = read_manifest(str(folder / "run"), config, roots=[source.root for source in manifest.sources])
        assert told is not None
        assert len(hub.requests) == before

    assert told.fingerprint == manifest.fingerprint
    assert told.sources == manifest.sources


def test_files_of_the_manifest_are_not_asked_for_their_size(folder):
    with StubHub(folder) as hub:
        config = DataConfig(path=f"{hub.url}/data/*.parquet")
        manifest = make_manifest(config, batch_size=4)
        before = len(hub.requests)
        plan = plan_lanes(manifest, config, batch_size=4, seed=1)
        with BatchLoader(manifest, BYTES, plan, 64, rows=range(4), prefetch=0) as loader:
            next(loader)
        after = hub.requests[before:]

    assert {request.method for request in after} == {"GET"}


@pytest.mark.parametrize("cut", [100, 1500], ids=["much", "some"])
def test_cut_object_is_named_at_once(folder, cut):
    path = folder / "data" / "part-0001.parquet"
    with StubHub(folder) as hub:
        config = DataConfig(path=f"{hub.url}/data/*.parquet", retry_seconds=0)
        manifest = make_manifest(config, batch_size=4)
        size = path.stat().st_size
        path.write_bytes(path.read_bytes()[: size - cut])
        plan = plan_lanes(manifest, config, batch_size=4, seed=1)
        message = rf"'part-0001.parquet' .*its size was {size} bytes, now {size - cut}"
        loader = BatchLoader(manifest, BYTES, plan, 64, rows=range(4))
        with loader, pytest.raises(NotFoundError, match=message):
            collections.deque((next(loader) for _ in range(50)), maxlen=0)


def test_storage_that_fails_for_as_long_as_data_may_be_away_ends_the_run(folder, monkeypatch):
    """The limit is retrySeconds, not that of the storage's own repetitions."""
    monkeypatch.setattr(remote, "RETRYING", quick(limit_seconds=3600))
    is_out = threading.Event()
    with StubHub(folder, lambda number, host, path: MISBEHAVIOUR["503"] if is_out.is_set() else None) as hub:
        config = DataConfig(path=f"{hub.url}/data/*.parquet", retry_seconds=1)
        manifest = make_manifest(config, batch_size=4)
        plan = plan_lanes(manifest, config, batch_size=4, seed=1)
        is_out.set()
        message = r"part-000\d.parquet could not be read \(unavailable .*is kept, and another attempt may succeed\)$"
        began = time.monotonic()
        loader = BatchLoader(manifest, BYTES, plan, 64, rows=range(4))
        with loader, pytest.raises(TrainerError, match=message) as found:
            collections.deque((next(loader) for _ in range(50)), maxlen=0)

    assert time.monotonic() - began < 60
    assert found.value.exit_code == 1, "the job is tried again"


HOSTS, THREADS, READS = 8, 4, 6
RETRY_AFTER = 1


class TimedMeter(ReadMeter):
    """Knows when each request of a host was sent, and when it was told to wait."""

    def __init__(self):
        super().__init__()
        self.sent: list[float] = []
        self.told: list[float] = []

    def request(self, what):
        self.sent.append(time.monotonic())
        return super().request(what)

    def failed(self, what, cause, error):
        if cause == "rate_limited":
            self.told.append(time.monotonic())
        super().failed(what, cause, error)


class RateLimit:
    """A hub that takes so many requests from each host, then refuses it for a while; now and then something worse."""

    def __init__(self, most):
        self._most = most
        self._counts: collections.Counter[str] = collections.Counter()
        self._refused: set[str] = set()

    def __call__(self, number, host, path):
        self._counts[host] += 1
        if self._counts[host] > self._most and host not in self._refused:
            self._refused.add(host)
            return MISBEHAVIOUR["429"]
        return MISBEHAVIOUR["truncated"] if number % 17 == 16 else None


def test_hosts_keep_to_what_the_storage_asks_for(tmp_path):
    content = bytes(range(256)) * 64
    (tmp_path / "file").write_bytes(content)
    share = len(content) // READS

    with StubHub(tmp_path, RateLimit(most=5)) as hub:

        def read(host, retrying, meter):
            filesystem = fsspec.filesystem(
                "http", client_kwargs={"headers": {"X-Host": host}}, skip_instance_cache=True
            )
            file = RemoteFile(filesystem, f"{hub.url}/file", len(content), retrying=retrying, meter=meter)
            return b"".join(file.read(share if number + 1 < READS else -1) for number in range(READS))

        with concurrent.futures.ThreadPoolExecutor(HOSTS * THREADS) as pool:
            futures, meters = [], []
            for host in map(str, range(HOSTS)):
                meters.append(TimedMeter())
                retrying = Retrying(meter=meters[-1])
                futures += [pool.submit(read, host, retrying, meters[-1]) for _ in range(THREADS)]
            results = [future.result(300) for future in futures]
        requests = hub.requests

    assert all(result == content for result in results)
    # Bounded: each needed read once, and once more for each that was refused or cut.
    bad = sum(meter.retries.total() for meter in meters)
    assert len(requests) == HOSTS * THREADS * READS + bad
    assert sum(meter.retries["rate_limited"] for meter in meters) == HOSTS
    for meter in meters:
        (told,) = meter.told
        # What was let go just before is counted a moment later; the clock is read a moment after the waiting began.
        assert [sent - told for sent in meter.sent if RETRY_AFTER / 2 < sent - told < RETRY_AFTER - 0.05] == []
