"""Corpora of many files and row groups: time and memory, in a process of its own; `make bench-data` has a large one."""

import json
import subprocess
import sys

from tests.harness.processes import REPOSITORY


def test_many_row_groups_take_little_time_and_memory():
    """A tenth of the files of the benchmark; for a busy machine the limit of the whole is allowed."""
    command = [sys.executable, "-m", "benchmarks.data_limits", "scale", "--files", "500"]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=REPOSITORY, timeout=600)
    figures = json.loads(result.stdout)
    assert figures["units"] == 200_000
    assert figures["seconds"] < 60
    assert figures["peak_mebibytes"] < 400
