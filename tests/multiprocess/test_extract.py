"""Workers of one extraction as real processes over an emulated bucket: whatever is done to them, each sample once."""

import itertools
import json
import pathlib
import random
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.multiprocess.fleet import Chaos, Fleet
from tests.multiprocess.storage_proxy import StorageProxy
from tests.trainer.extract import make_reference

pytestmark = pytest.mark.processes

ROWS = 480
UNIT_ROWS = 8
LEASE_SECONDS = 4
_FOLDERS = itertools.count()


def _config(corpus, **extract):
    return {
        "task": "extract",
        "model": {"layers": 2, "embedDim": 16, "heads": 2},
        "data": {"path": corpus},
        "sequenceLength": 32,
        "batchSize": 4,
        "extract": {
            "layers": ["0-1"],
            "keep": ["residual", "attention"],
            "dtype": "float32",
            "unitRows": UNIT_ROWS,
            "leaseSeconds": LEASE_SECONDS,
            "buckets": 2,
            "scratchBytes": 1 << 20,
            **extract,
        },
    }


def _corpus(folder, rows):
    """Rows of many lengths, some of no use."""
    chance = random.Random(0)  # noqa: S311
    texts: list[str | None] = [f"row {number} " + "x" * chance.randrange(40) for number in range(rows)]
    texts[5] = texts[100] = None
    for number in range(4):
        part = texts[number * rows // 4 : (number + 1) * rows // 4]
        pq.write_table(pa.table({"text": part}), folder / f"{number}.parquet", row_group_size=40)
    return str(folder)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return _corpus(tmp_path_factory.mktemp("corpus"), ROWS)


@pytest.fixture
def directory():
    return f"gs://tests/features-{next(_FOLDERS)}"


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory):
    return _undisturbed(corpus, tmp_path_factory.mktemp("undisturbed"))


def _undisturbed(corpus, folder):
    """The samples of one worker that nothing happened to."""
    with Fleet(folder / "logs", str(folder / "out"), _config(corpus)) as fleet:
        fleet.start_all(1)
        fleet.wait(limit_seconds=120)
    found = [json.loads(file.read_text()) for file in sorted((folder / "out" / "done").iterdir())]
    return _samples(found, lambda name: (folder / "out" / name).read_bytes())


def _results(bucket, directory):
    prefix = directory.removeprefix("gs://tests/")
    return [json.loads(bucket.read(name)) for name in bucket.objects(f"{prefix}/done/")]


def _samples(results, read):
    """Tokens and values of each sample; fails if one is there twice."""
    found = {}
    for result in results:
        for file in result["files"]:
            for row in pq.read_table(pa.BufferReader(read(file["name"]))).to_pylist():
                assert row["sample"] not in found
                found[row["sample"]] = row
    return found


def _require_equal(found, wanted):
    assert sorted(found) == sorted(wanted)
    for sample, row in found.items():
        assert row["tokens"] == wanted[sample]["tokens"]
        for column in ("layer_0_residual", "layer_1_attention"):
            np.testing.assert_array_equal(row[column], wanted[sample][column], err_msg=f"{column} of {sample}")


def _play(bucket, corpus, directory, folder, *, workers, kills, freezes, failing, limit_seconds):
    proxy = StorageProxy(bucket, workers)
    chance = random.Random(3)  # noqa: S311

    def environment(worker):
        return {**proxy.environment(worker), "SKEW_SECONDS": str(chance.choice((-120, 0, 120)))}

    proxy.fail(503, lambda request: chance.random() < failing, loses_answer=lambda: chance.random() < 0.5)
    try:
        with Fleet(folder, directory, _config(corpus), environment) as fleet:
            fleet.start_all(workers)
            chaos = Chaos(fleet, kills, freezes)
            fleet.wait(limit_seconds=limit_seconds, meanwhile=chaos.turn)
            # Those that the last kills hit when nothing was left to do have been started again, and found that.
            return fleet, chaos
    finally:
        proxy.close()


def _read(bucket, directory):
    prefix = directory.removeprefix("gs://tests/")
    return lambda name: bucket.read(f"{prefix}/{name}")


@pytest.mark.timeout(400)
def test_killed_and_frozen_workers_lose_nothing(bucket, corpus, undisturbed, directory, tmp_path):
    fleet, _ = _play(
        bucket, corpus, directory, tmp_path, workers=3, kills=3, freezes=1, failing=0.05, limit_seconds=300
    )
    results = _results(bucket, directory)
    assert [result["unit"] for result in results] == list(range(len(results)))
    _require_equal(_samples(results, _read(bucket, directory)), undisturbed)
    assert fleet.killed


@pytest.mark.timeout(240)
def test_workers_read_their_own_units_and_list_once(bucket, corpus, undisturbed, directory, tmp_path):
    proxy = StorageProxy(bucket, 4)
    try:
        with Fleet(tmp_path, directory, _config(corpus, unitRows=40), proxy.environment) as fleet:
            fleet.start_all(4)
            fleet.wait(limit_seconds=200)
            logs = [process.log for process in fleet.now().values()]
    finally:
        proxy.close()
    assert sum("Scanning" in log for log in logs) == 1, "the corpus was listed more than once"
    read = sum(int(re.findall(r"Corpus bytes read: (\d+)", log)[-1]) for log in logs)
    size = sum(file.stat().st_size for file in pathlib.Path(corpus).iterdir())
    assert read < 3 * size, "units were read more than once"
    _require_equal(_samples(_results(bucket, directory), _read(bucket, directory)), undisturbed)


@pytest.mark.timeout(240)
def test_result_equals_transformers(tmp_path):
    """Tiny Qwen 2 weights as transformers wrote them, and what its own modules gave for the same tokens."""
    tokens = make_reference.PROMPT
    pq.write_table(pa.table({"tokens": [tokens, tokens[:7], tokens]}), tmp_path / "tokens.parquet")
    config = {
        "task": "extract",
        "model": {"from": str(make_reference.MODELS / "qwen2")},
        "data": {"path": f"{tmp_path}/*.parquet", "tokensColumn": "tokens", "tokenizer": "bytes"},
        "sequenceLength": 16,
        "extract": {"layers": ["0-2"], "keep": ["residual", "mlp"], "dtype": "float32"},
    }
    with Fleet(tmp_path / "logs", str(tmp_path / "out"), config) as fleet:
        fleet.start_all(1)
        fleet.wait(limit_seconds=200)
    results = [json.loads(file.read_text()) for file in sorted((tmp_path / "out" / "done").iterdir())]
    found = _samples(results, lambda name: (tmp_path / "out" / name).read_bytes())
    with np.load(make_reference.FOLDER / "qwen2.npz") as expected:
        for sample, length in ((0, 12), (1, 7), (2, 12)):
            for column in ("layer_0_mlp", "layer_2_residual"):
                np.testing.assert_allclose(
                    found[sample][column], expected[column][:length], rtol=1e-4, atol=2e-5, err_msg=column
                )


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_fifty_kills(bucket, directory, tmp_path):
    for name in ("corpus", "undisturbed", "workers"):
        (tmp_path / name).mkdir()
    corpus = _corpus(tmp_path / "corpus", 8000)
    undisturbed = _undisturbed(corpus, tmp_path / "undisturbed")
    fleet, chaos = _play(
        bucket, corpus, directory, tmp_path / "workers", workers=8, kills=50, freezes=8, failing=0.1, limit_seconds=3000
    )
    assert (fleet.killed, chaos.kills) == (50, 0)
    _require_equal(_samples(_results(bucket, directory), _read(bucket, directory)), undisturbed)
