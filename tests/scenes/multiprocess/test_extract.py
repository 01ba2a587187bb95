"""Workers of one extraction as real processes over an emulated bucket: whatever is done to them, each sample once."""

import collections
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness.fleet import Chaos, Fleet
from tests.harness.processes import PATIENCE_SECONDS, REPOSITORY
from tests.held_unit import held_unit
from tests.multiprocess.storage_proxy import StorageProxy
from tests.trainer.corpus.extract import make_reference
from tests.trainer.data.stub_dataset_hub import STORAGE, StubDatasetHub
from tpujob_contract.reports.report import split_final_report
from tpujob_sdk import read_activations

pytestmark = pytest.mark.processes

EXAMPLE = REPOSITORY / "examples" / "own-loop" / "train_sparse_autoencoder.py"
ROWS = 480
UNIT_ROWS = 8
LONGEST_ROW = 64
"""Tokens that every row of the corpus fits into."""
LEASE_SECONDS = 4
"""Short, for units to be taken over within a test."""
LONG_LEASE_SECONDS = 120
"""Where nobody dies: a worker that a busy machine keeps waiting loses no unit."""
IN_FLIGHT = 5
"""Units that a worker has at most: one that is read, one that is computed, three that are uploaded."""
FOOTER_BYTES = 64 << 10
"""That are read of the end of a remote file at first; a local file's footer is smaller."""
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
def undisturbed_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("undisturbed")


@pytest.fixture(scope="module")
def undisturbed(corpus, undisturbed_folder):
    return _undisturbed(corpus, undisturbed_folder)


def _undisturbed(corpus, folder):
    """The samples of one worker that nothing happened to."""
    with Fleet(folder / "logs", str(folder / "out"), _config(corpus)) as fleet:
        fleet.start_all(1)
        fleet.wait()
    found = [json.loads(file.read_text()) for file in sorted((folder / "out" / "done").iterdir())]
    assert all(result["flops"] > 0 for result in found)
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
    """Bit by bit."""
    assert sorted(found) == sorted(wanted)
    for sample, row in found.items():
        assert row["tokens"] == wanted[sample]["tokens"]
        for column in ("layer_0_residual", "layer_1_attention"):
            np.testing.assert_array_equal(row[column], wanted[sample][column], err_msg=f"{column} of {sample}")


def _require_little_lost(results, fleet):
    """Of what a killed worker had claimed, others took over no more than it had in flight."""
    lives = [process for lives in fleet.lives.values() for process in lives if process.exit_code == 137]
    killed = {re.findall(r"Worker (\S+):", process.log)[0] for process in lives}
    assert len(killed) == fleet.killed
    lost = collections.Counter(result["taken_over_from"] for result in results)
    assert max(lost[worker] for worker in killed) <= IN_FLIGHT


def _play(bucket, corpus, directory, folder, *, workers, kills, freezes, failing, limit_seconds):
    proxy = StorageProxy(bucket, workers)
    chance = random.Random(3)  # noqa: S311
    prefix = directory.removeprefix("gs://tests/")

    def environment(worker):
        return {**proxy.environment(worker), "SKEW_SECONDS": str(chance.choice((-120, 0, 120)))}

    proxy.fail(503, lambda request: chance.random() < failing, loses_answer=lambda: chance.random() < 0.5)
    try:
        with contextlib.ExitStack() as until_killed, Fleet(folder, directory, _config(corpus), environment) as fleet:
            chaos = Chaos(fleet, kills, freezes)

            def meanwhile():
                chaos.turn()
                if not chaos.kills:
                    until_killed.close()

            until_killed.enter_context(held_unit(lambda name, claim: bucket.write(f"{prefix}/{name}", claim)))
            fleet.start_all(workers)
            fleet.wait(limit_seconds=limit_seconds, meanwhile=meanwhile)
            # Those that the last kills hit when nothing was left to do have been started again, and found that.
            assert (fleet.killed, chaos.kills) == (kills, 0)
            return fleet
    finally:
        proxy.close()


def _read(bucket, directory):
    prefix = directory.removeprefix("gs://tests/")
    return lambda name: bucket.read(f"{prefix}/{name}")


def test_finished_worker_leaves_its_figures(undisturbed, undisturbed_folder):
    """A job may be over before it is asked for a report."""
    message = (undisturbed_folder / "logs" / "0.0.termination").read_text()
    _, line = split_final_report(message)
    assert line is not None
    figures = json.loads(line)
    units = len(list((undisturbed_folder / "out" / "done").iterdir()))
    assert (figures["units"], figures["units_done"], figures["phase"]) == (units, units, "finished")


def test_status_says_chip_hours_as_the_page_does(undisturbed, undisturbed_folder):
    command = [sys.executable, "-m", "tpujob", "extract", "status", str(undisturbed_folder / "out")]
    told = subprocess.run([*command, "--chip-hour-price", "50"], check=True, capture_output=True, text=True)
    page = (REPOSITORY / "docs" / "extraction.md").read_text()
    measured = _without_numbers(told.stdout, "chips ", "         measured ", "cost ")
    assert len(measured) == 3
    assert measured == _without_numbers(page, "chips ", "         measured ", "cost ")


def _without_numbers(text, *starts):
    """The lines that begin so; "less than 0.0001" is a number, too, of a machine that is quick."""
    return [re.sub(r"(less than )?[0-9][0-9.,]*", "0", line) for line in text.splitlines() if line.startswith(starts)]


def test_killed_and_frozen_workers_lose_nothing(bucket, corpus, undisturbed, directory, tmp_path):
    fleet = _play(bucket, corpus, directory, tmp_path, workers=3, kills=2, freezes=1, failing=0.05, limit_seconds=800)
    results = _results(bucket, directory)
    assert [result["unit"] for result in results] == list(range(len(results)))
    _require_equal(_samples(results, _read(bucket, directory)), undisturbed)
    _require_little_lost(results, fleet)


def test_worker_reads_the_bytes_of_its_units(bucket, directory, tmp_path):
    """And the one that lists the corpus, the footers of all files and one row group, for a sample."""
    chance = random.Random(1)  # noqa: S311
    (tmp_path / "corpus").mkdir()
    for number in range(4):
        part = [chance.randbytes(2000).hex() for _ in range(120)]
        pq.write_table(pa.table({"text": part}), tmp_path / "corpus" / f"{number}.parquet", row_group_size=40)
    first = pq.read_metadata(tmp_path / "corpus" / "0.parquet")
    group = first.row_group(0).column(0).total_compressed_size
    config = _config(str(tmp_path / "corpus"), unitRows=40, leaseSeconds=LONG_LEASE_SECONDS)
    with Fleet(tmp_path / "logs", directory, config, lambda _: bucket.environment) as fleet:
        fleet.start_all(2)
        fleet.wait()
        logs = {str(worker): process.log for worker, process in fleet.now().items()}
    assert sum("Scanning" in log for log in logs.values()) == 1, "the corpus was listed more than once"
    units = collections.Counter(result["worker"].split("-")[-2] for result in _results(bucket, directory))
    assert sum(units.values()) == 12
    for worker, log in logs.items():
        read = int(re.findall(r"Corpus bytes read: (\d+)", log)[-1])
        allowed = units[worker] * group * 1.01 + 4 * first.serialized_size + 4096
        if "Scanning" in log:
            allowed += group + 4 * FOOTER_BYTES
        assert units[worker] * group <= read <= allowed, f"worker {worker}"


@pytest.mark.parametrize("cause", ["a full scratch disk", "another corpus", "another task"])
def test_refusal_is_one_line_and_loses_nothing(corpus, undisturbed, undisturbed_folder, tmp_path, cause):
    out = tmp_path / "out"
    shutil.copytree(undisturbed_folder / "out", out)
    before = _contents(out)
    if cause == "another corpus":
        shutil.copytree(corpus, tmp_path / "corpus")
        pq.write_table(pa.table({"text": ["another row"] * 120}), tmp_path / "corpus" / "0.parquet")
        config, message = _config(str(tmp_path / "corpus")), "spec.trainer.data"
    elif cause == "another task":
        config = {name: value for name, value in _config(corpus).items() if name != "extract"} | {"task": "score"}
        message = "spec.trainer.task: 'score' in this worker, 'extract' in the files that are there"
    else:
        config = _config(corpus, scratch="/dev/shm", scratchBytes=1 << 40)
        message = "spec.trainer.extract.scratch: "
    with Fleet(tmp_path / "logs", str(out), config) as fleet:
        process = fleet.start(0)
        process.wait(PATIENCE_SECONDS)
        log = process.log
    assert process.exit_code not in (0, 75), log
    lines = process.log_file.with_suffix(".termination").read_text().splitlines()
    assert sum(message in line for line in lines) == 1, lines
    after = _contents(out)
    assert {file: after.get(file) for file in before} == before


def _contents(out):
    kept = ("done", "out", "extract.json", "weights.json")
    return {
        str(file.relative_to(out)): file.read_bytes()
        for file in sorted(out.rglob("*"))
        if file.is_file() and file.relative_to(out).parts[0] in kept
    }


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
        fleet.wait()
    results = [json.loads(file.read_text()) for file in sorted((tmp_path / "out" / "done").iterdir())]
    found = _samples(results, lambda name: (tmp_path / "out" / name).read_bytes())
    by_reader = {row.sample: row.values for row in read_activations(str(tmp_path / "out"))}
    with np.load(make_reference.FOLDER / "qwen2.npz") as expected:
        for sample, length in ((0, 12), (1, 7), (2, 12)):
            for column in ("layer_0_mlp", "layer_2_residual"):
                for values in (found[sample][column], by_reader[sample][column]):
                    np.testing.assert_allclose(values, expected[column][:length], rtol=1e-4, atol=2e-5, err_msg=column)

    command = [sys.executable, EXAMPLE, tmp_path / "out", "layer_2_residual"]
    done = subprocess.run(command, env={**os.environ, "STEPS": "200"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    unexplained = [float(share) for share in re.findall(r"step \d+: ([\d.]+) of the variance", done.stdout)]
    assert len(unexplained) == 3
    assert unexplained[2] < 0.5 * unexplained[0], done.stdout


def test_weights_are_fetched_from_the_hub_once_for_all_workers(bucket, directory, tmp_path):
    pq.write_table(pa.table({"tokens": [make_reference.PROMPT] * 12}), tmp_path / "tokens.parquet")
    config = {
        "task": "embed",
        "data": {"path": f"{tmp_path}/*.parquet", "tokensColumn": "tokens", "tokenizer": "bytes"},
        "sequenceLength": 16,
        "batchSize": 2,
        "embed": {"unitRows": 2},
    }
    hub = StubDatasetHub(tmp_path / "hub")
    model = hub.commit("owner/model", 1)
    for file in (make_reference.MODELS / "qwen2").iterdir():
        shutil.copy(file, model / file.name)

    def environment(worker):
        return {
            **bucket.environment,
            "HF_ENDPOINT": hub.url,
            "HF_HUB_USER_AGENT_ORIGIN": f"worker-{worker}",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }

    here = f"gs://{bucket.name}/{directory}"
    with (
        hub,
        Fleet(tmp_path / "logs", here, config | {"model": {"from": "hf://datasets/owner/model"}}, environment) as fleet,
    ):
        fleet.start_all(2)
        fleet.wait()
    read = [each for each in hub.requests if each.method == "GET" and each.path.startswith(f"{STORAGE}/owner/model")]
    assert len({request.host for request in read if "safetensors" in request.path}) == 1
    size = (model / "model.safetensors").stat().st_size
    (copy,) = (name for name in bucket.objects(f"{directory}/weights/") if name.endswith(".safetensors"))
    assert bucket.read(copy) == (model / "model.safetensors").read_bytes()
    assert sum(_asked_for(request.range, size) for request in read if "model.safetensors" in request.path) == size


def _asked_for(wanted, size):
    first, last = wanted.removeprefix("bytes=").split("-") if wanted else (0, size - 1)
    return int(last) - int(first) + 1


TASKS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "score": ({"perToken": True}, ["loss", "perplexity", "scored_tokens", "token_losses"]),
    "embed": ({"positions": "last"}, ["embedding"]),
    "generate": ({"tokens": 4}, ["completion_tokens", "completion", "finished"]),
}


@pytest.mark.parametrize("task", TASKS)
def test_task_writes_a_line_for_each_row(corpus, tmp_path, task):
    block, columns = TASKS[task]
    config = _config(corpus) | {
        "task": task,
        "sequenceLength": LONGEST_ROW,
        task: {"unitRows": 80, "buckets": 1, **block},
    }
    del config["extract"]
    with Fleet(tmp_path / "logs", str(tmp_path / "out"), config) as fleet:
        fleet.start_all(1)
        fleet.wait()
    merged = subprocess.run(
        [sys.executable, "-m", "tpujob", "extract", "merge", str(tmp_path / "out")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "every checksum is right" in merged.stdout
    found = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache"))
    assert sorted(found["sample"]) == [row for row in range(ROWS) if row not in (5, 100)]
    assert found.column_names == ["sample", "unit", "row", "tokens", *columns]


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_fifty_kills(bucket, directory, tmp_path):
    for name in ("corpus", "undisturbed", "workers"):
        (tmp_path / name).mkdir()
    corpus = _corpus(tmp_path / "corpus", 8000)
    undisturbed = _undisturbed(corpus, tmp_path / "undisturbed")
    fleet = _play(
        bucket, corpus, directory, tmp_path / "workers", workers=8, kills=50, freezes=8, failing=0.1, limit_seconds=3000
    )
    results = _results(bucket, directory)
    _require_equal(_samples(results, _read(bucket, directory)), undisturbed)
    _require_little_lost(results, fleet)
