"""Ctrl-C in `tpujob run` of an extraction, with real workers: what it says, and what the next run finds."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

from tests.harness.processes import COMPILE_CACHE
from tests.quick_compiling import XLA_FLAGS
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.processes

ROWS, UNIT_ROWS, WORKERS = 2400, 4, 2
UNITS = ROWS // UNIT_ROWS


def _start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tpujob", "run", "job.yaml", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Compiled once for all, where that is kept: what is shown here is not the speed.
        env={
            **os.environ,
            "XLA_FLAGS": XLA_FLAGS,
            "JAX_COMPILATION_CACHE_DIR": str(COMPILE_CACHE),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        },
    )


def _write_job(folder: Path) -> None:
    pq.write_table(pa.table({"text": [f"row {number}" for number in range(ROWS)]}), folder / "rows.parquet")
    trainer = {
        "task": "extract",
        "model": {"layers": 2, "embedDim": 16, "heads": 2},
        "data": {"path": str(folder / "rows.parquet"), "tokenizer": "bytes"},
        "sequenceLength": 32,
        "batchSize": 4,
        "extract": {"layers": [1], "unitRows": UNIT_ROWS, "buckets": 1, "scratchBytes": 1 << 20},
    }
    spec = {"accelerator": "cpu:1x1", "workers": WORKERS, "checkpointDir": str(folder / "features"), "trainer": trainer}
    job = {"apiVersion": "tpujob.dev/v1alpha1", "kind": "TpuTrainingJob", "metadata": {"name": "features"}}
    YAML().dump({**job, "spec": spec}, folder / "job.yaml")


def test_interrupt_gives_units_back_and_the_next_run_does_the_others(tmp_path: Path) -> None:
    _write_job(tmp_path)
    done, claims = tmp_path / "features" / "done", tmp_path / "features" / "claims"
    running = _start(tmp_path)
    has_begun = lambda: running.poll() is not None or len(list(done.glob("*.json"))) >= 20  # noqa: E731
    wait_for("units that are done", has_begun, timeout_seconds=600)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=600)
    assert running.returncode == 75, err
    kept = {file.name: file.read_bytes() for file in done.glob("*.json")}
    said = re.search(r"^stopped: ([\d,]+) of 600 units done; `tpujob run .*` goes on with the others$", out, re.M)
    assert said, out + err
    assert 20 <= int(said[1].replace(",", "")) <= len(kept) < UNITS, "what was on its way is finished"
    assert list(claims.glob("*")) == [], "no unit waits for its lease to lapse"
    assert "starts from the beginning" not in out + err

    again = _start(tmp_path, "--json")
    out, err = again.communicate(timeout=600)
    assert again.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["phase"] == "Succeeded"
    assert f"finished · {UNITS} of {UNITS} units" in err
    results = {file.name: file.read_bytes() for file in done.glob("*.json")}
    assert len(results) == UNITS
    assert {name: results[name] for name in kept} == kept, "units that were done are not computed again"
    assert sum(json.loads(each)["rows"] for each in results.values()) == ROWS
