"""Each object of the newest checkpoint, damaged in each way: what is restored is always what was saved."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.harness.processes import COMPILE_CACHE, REPOSITORY

pytestmark = pytest.mark.processes

NEEDED = re.compile(r"^(fingerprints/metadata|state/d/.*|state/manifest.ocdbt)$")
"""Objects without which nothing is restored. Others are needed in part, or only to write."""


@pytest.fixture(
    scope="module",
    params=["local", pytest.param("bucket", marks=pytest.mark.faults)],
)
def table(request, tmp_path_factory):
    """What came of each damage, by object and way."""
    kind = request.param
    bucket = request.getfixturevalue("bucket") if kind == "bucket" else None
    folder = tmp_path_factory.mktemp("damage")
    directory = f"gs://{bucket.name}/{folder.name}" if bucket else str(folder / "checkpoints")
    case = {
        "directory": directory,
        "bucket": {"url": bucket.url, "name": bucket.name} if bucket else None,
    }
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path_factory.mktemp("home")),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(COMPILE_CACHE),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "CASE": json.dumps(case),
        **(bucket.environment if bucket else {}),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.multiprocess.checkpoint_damage"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900 if bucket else 720,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_is_restored_is_always_what_was_saved(table):
    assert len(table) >= 20
    assert [row for row in table if not row["is_what_was_saved"]] == []


def test_damage_that_matters_costs_one_step_and_says_why(table):
    needed = [row for row in table if NEEDED.match(row["object"])]
    assert {row["object"].split("/")[1] for row in needed} == {"manifest.ocdbt", "d", "metadata"}
    assert [row for row in needed if row["restored"] != 2] == []
    for row in table:
        if row["restored"] == 2 and row["object"] != "commit_success.txt":
            assert row["still_there"] == [2], row
            (why,) = row["why"]
            assert why.startswith("4: process 0: "), row


def test_flipped_bits_of_the_arrays_are_seen_by_the_fingerprints(table):
    """Nothing else would tell: the chunks of arrays carry no checksum."""
    flipped = [row for row in table if row["way"] == "flipped" and "/ocdbt.process_0/d/" in row["object"]]
    said = [why for row in flipped for why in row["why"]]
    seen = {why.split(": ")[2] for why in said if "the fingerprint is not that" in why}
    # Which array a flipped bit falls into depends on how the storage's objects are cut.
    assert seen
    assert seen <= {"weights", "moments"}


def test_damage_that_does_not_matter_costs_nothing(table):
    for row in table:
        if row["restored"] == 4:
            assert row["why"] == []
            assert row["still_there"] == [4, 2]


def test_step_whose_marker_is_lost_is_no_checkpoint(table):
    (row,) = [r for r in table if r["object"] == "commit_success.txt" and r["way"] == "deleted"]
    assert row["restored"] == 2
    assert row["why"] == []
