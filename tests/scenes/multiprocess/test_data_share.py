"""Bytes that each of several processes reads, by the count of the kernel."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness.processes import REPOSITORY

pytestmark = pytest.mark.processes

PROCESSES, ROWS = 4, 16
FILES, GROUPS, GROUP_BYTES = 16, 8, 400_000
"""As many row groups as 16 lanes want units: none is cut, for a part of a row group costs the whole."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Text that does not compress, 128 row groups of 0.4 MB each."""
    folder = tmp_path_factory.mktemp("share")
    random = np.random.default_rng(0)
    for number in range(FILES):
        texts = [random.bytes(1000).hex() for _ in range(GROUPS * GROUP_BYTES // 2000)]
        table = pa.table({"text": texts})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=GROUP_BYTES // 2000, compression="none")
    return folder


@pytest.fixture(scope="module")
def shares(corpus):
    program = ["-m", "tests.multiprocess.reading_share", f"{corpus}/*.parquet"]
    running = [
        subprocess.Popen(
            [sys.executable, *program, str(process), str(PROCESSES), str(ROWS), "2048"],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
        )
        for process in range(PROCESSES)
    ]
    return [json.loads(process.communicate(timeout=600)[0]) for process in running]


def test_each_process_reads_its_part_of_the_bytes(corpus, shares):
    whole = sum(file.stat().st_size for file in corpus.iterdir())

    for share in shares:
        assert share["kernel"] == pytest.approx(whole / PROCESSES, rel=0.05)


def test_metric_counts_what_the_kernel_counts(shares):
    for share in shares:
        assert share["counted"] == pytest.approx(share["kernel"], rel=0.01)


def test_each_row_is_read_by_one_process(shares):
    assert sum(share["rows"] for share in shares) == FILES * GROUPS * GROUP_BYTES // 2000
