"""Checkpoints on gs://, where a marker is the commit and nothing can be renamed."""

import itertools
import json
import os
import subprocess
import sys

import pytest

from tests.harness import processes
from tests.trainer.data.data_files import WRITERS
from tools.localcluster.waiting import wait_for
from tpujob_trainer.data import DataChangedError, DataConfig, make_manifest
from tpujob_trainer.data.manifest.reader import UnitReader

pytestmark = pytest.mark.processes

COUNTING = ("-m", "tests.multiprocess.counting_run")


@pytest.fixture(scope="module")
def run(bucket, tmp_path_factory):
    """A function that lets a counting run of two processes end by itself."""
    folder = tmp_path_factory.mktemp("runs")
    number = itertools.count()

    def run(where, steps, **arguments):
        with processes.start(
            folder / str(next(number)),
            processes=2,
            devices=1,
            config={"steps": steps, "save_every": 2},
            checkpoint_dir=where,
            program=COUNTING,
            extra=bucket.environment,
            **arguments,
        ) as found:
            found.wait()
        return found

    return run


def codes(run):
    return [member.poll() for member in run.members]


def test_bucket_is_a_checkpoint_directory(run, bucket):
    name = "run{a,b}%20"
    where = f"gs://{bucket.name}/{name}"
    first = run(where, 4)
    assert codes(first) == [0, 0], first.explain()
    assert json.loads(bucket.read(f"{name}/owner.json")) == {"owner": "test/job"}
    assert json.loads(bucket.read(f"{name}/latest.json"))["step"] == 4
    assert json.loads(bucket.read(f"{name}/lease.json"))["released"] is True
    assert f"{name}/steps/4/commit_success.txt" in bucket.objects(f"{name}/steps/4/")

    # Bytes that are lost make the step before the newest one; the bad one is saved anew in its place.
    for part in bucket.objects(f"{name}/steps/4/state/d/"):
        bucket.write(part, b"")
    second = run(where, 6)
    assert codes(second) == [0, 0], second.explain()
    for member in second.members:
        assert "The checkpoint of step 4 cannot be used" in member.log
        assert "restored=2 value=2.0" in member.log
    assert f"{name}/steps/4/unusable.json" not in bucket.objects(f"{name}/steps/4/")
    assert f"{name}/steps/4/commit_success.txt" in bucket.objects(f"{name}/steps/4/")

    other = run(where, 8, name="other")
    assert codes(other) == [78, 78], other.explain()
    assert "belongs to test/job, and this job is test/other" in other[1].termination_message


def test_second_live_run_is_refused_by_name(bucket, tmp_path, run):
    where = f"gs://{bucket.name}/live"
    with processes.start(
        tmp_path / "first",
        processes=2,
        devices=1,
        config={"steps": 10_000_000, "save_every": 100, "step_seconds": 0.01},
        checkpoint_dir=where,
        program=COUNTING,
        extra=bucket.environment,
    ) as first:
        wait_for(
            "the first step",
            lambda: "counting" in first[0].log,
            timeout_seconds=processes.PATIENCE_SECONDS,
            explain=first.explain,
        )
        second = run(where, 4)
        assert codes(second) == [78, 78], second.explain()
        holder = json.loads(bucket.read("live/lease.json"))["holder"]
        for member in second.members:
            assert f"another run is writing to {where}: {holder}" in member.termination_message
        assert codes(first) == [None, None], first.explain()
        # A later attempt of the same job comes when the one before is gone; if it is not after all, it has to go.
        with processes.start(
            tmp_path / "third",
            processes=2,
            devices=1,
            config={"steps": 10_000_000, "save_every": 100, "step_seconds": 0.01},
            checkpoint_dir=where,
            attempt=1,
            program=COUNTING,
            extra=bucket.environment,
        ) as third:
            assert first.wait() == [78, 78], first.explain()
            assert "another run has taken over" in first[0].termination_message
            assert codes(third) == [None, None], third.explain()


def test_bucket_that_is_not_there_is_named(run):
    found = run("gs://nowhere/run", 4)
    assert codes(found) == [77, 77], found.explain()
    for member in found.members:
        assert "spec.checkpointDir: gs://nowhere/run cannot be read and written" in member.termination_message


CONDITIONAL_WRITES = """
import sys
from tpujob_trainer.storage import open_bucket

bucket = open_bucket(sys.argv[1])
assert bucket.look("a/b") is None
assert bucket.create("a/b", "1") and bucket.create("a/b", "2") is None
first = bucket.look("a/b")
newer = bucket.replace("a/b", "3", version=first.version)
assert newer == bucket.look("a/b").version != first.version
assert bucket.replace("a/b", "4", version=first.version) is None
bucket.write("a/c", b"5")
assert (bucket.read("a/b"), bucket.names("a/"), bucket.names()) == (b"3", ["a/b", "a/c"], ["a/b", "a/c"])
bucket.delete("a/c")
assert bucket.names() == ["a/b"]
try:
    open_bucket("gs://nowhere").write("a", "1")
except FileNotFoundError as error:
    print(error)
"""


def test_bucket_writes_conditionally(bucket):
    done = subprocess.run(
        [sys.executable, "-c", CONDITIONAL_WRITES, f"gs://{bucket.name}/conditional"],
        env={**os.environ, **bucket.environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "gs://nowhere/a" in done.stdout
    assert bucket.read("conditional/a/b") == b"3"


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.jsonl.gz", "a.txt", "a.tar"])
def test_replaced_data_is_refused_by_its_generation(bucket, tmp_path, monkeypatch, name):
    for key, value in bucket.environment.items():
        monkeypatch.setenv(key, value)
    texts = [f"row {number} of the data " * 20 for number in range(60)]
    WRITERS[name](tmp_path / name, texts)
    bucket.write(f"{name}/{name}", (tmp_path / name).read_bytes())
    manifest = make_manifest(DataConfig(path=f"gs://{bucket.name}/{name}", unit_bytes=4096))
    reader = UnitReader(manifest)
    reader.read(0)

    WRITERS[name](tmp_path / name, [text.replace("row", "new") for text in texts])
    bucket.write(f"{name}/{name}", (tmp_path / name).read_bytes())

    for again in (UnitReader(manifest), reader):
        with pytest.raises(DataChangedError, match=name):
            again.read(manifest.num_units - 1 if name != "a.parquet" else len(texts) // 7)
