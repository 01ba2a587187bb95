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

from tests.harness.processes import COMPILED_ONCE
from tools.localcluster.waiting import wait_for
from tpujob.local.closing import Closing
from tpujob.local.outcome import Outcome
from tpujob.local.reports import last_report
from tpujob_contract.reports.report import final_line

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
        env={**os.environ, **COMPILED_ONCE},
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
    job = {"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob", "metadata": {"name": "features"}}
    YAML().dump({**job, "spec": spec}, folder / "job.yaml")


def test_where_no_worker_reported_units_they_are_not_called_lost() -> None:
    closing = Closing(
        Outcome(phase="Suspended", exit_code=75, culprit=None),
        {},
        again="tpujob run a.yaml",
        has_trainer=True,
        has_units=True,
    )
    assert list(closing.lines()) == [
        "stopped: units that are done are kept; `tpujob run a.yaml` goes on with the others"
    ]


@pytest.mark.parametrize(
    ("finals", "files", "units"),
    [
        ([{"step": 0}, {"units": 600, "units_done": 20}], 0, (600, 20)),
        ([{"units": 600, "units_done": 7}, {"units": 600, "units_done": 20}], 0, (600, 20)),
        ([{"units": 600, "units_done": 7}, {"units": 600, "units_done": 9}], 15, (600, 15)),
        ([{"units": 600, "units_done": 7}, {}], 0, (600, 7)),
        ([{"step": 3}, {"step": 3}], 0, (None, None)),
    ],
    ids=["process 0 compiled", "process 1 looked later", "both did more since", "process 1 left none", "no units"],
)
def test_units_are_those_that_any_worker_knew_of_or_left(
    tmp_path: Path, finals: list[dict[str, int]], files: int, units: tuple[int | None, int | None]
) -> None:
    (tmp_path / "done").mkdir()
    for unit in range(files):
        (tmp_path / "done" / f"{unit:08}.json").write_text("{}")
    logs = [tmp_path / str(number) for number in range(len(finals))]
    for log, final in zip(logs, finals, strict=True):
        log.write_text(f"stopped\n{final_line(final)}\n" if final else "stopped\n")
    found = last_report(logs, str(tmp_path), {"phase": "compiling"})
    assert (found.get("units"), found.get("units_done")) == units


def test_last_line_has_the_rows_of_the_end_and_what_is_not_finite(tmp_path: Path) -> None:
    end = {"units": 39, "units_done": 39, "units_here": 39, "rows_here": 150, "values_not_finite": 300}
    (tmp_path / "log").write_text(f"{final_line(end)}\n")
    found = last_report([tmp_path / "log"], str(tmp_path), {**end, "units_here": 37, "rows_here": 142})
    lines = Closing(Outcome(phase="Succeeded", exit_code=0, culprit=None), found, again="", has_trainer=True).lines()
    assert next(lines) == "finished · 39 of 39 units · 150 rows"
    assert next(lines).startswith("warning: 300 values are not finite; float16 ends at 65504")


def test_interrupt_gives_units_back_and_the_next_run_does_the_others(tmp_path: Path) -> None:
    _write_job(tmp_path)
    done, claims = tmp_path / "features" / "done", tmp_path / "features" / "claims"
    running = _start(tmp_path)
    wait_for(
        "units that are done",
        lambda: running.poll() is not None or len(list(done.glob("*.json"))) >= 20,
        timeout_seconds=600,
    )
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=600)
    assert running.returncode == 75, err
    kept = {file.name: file.read_bytes() for file in done.glob("*.json")}
    said = re.search(r"^stopped: ([\d,]+) of 600 units done; `tpujob run .*` goes on with the others$", out, re.M)
    assert said, out + err
    assert 20 <= int(said[1].replace(",", "")) == len(kept) < UNITS, "what was on its way is finished"
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
