"""Independent workers in real pods: whatever is taken away from them, every unit is done once, and not before is the
job a success.
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.jobs import DATA, PATIENCE_SECONDS, Jobs
from tests.e2e.waiting import wait_for
from tests.held_unit import held_unit
from tools.localcluster.control_plane import CommandError

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

WORKERS = 4
ROWS, UNIT_ROWS = 60_000, 20
TAKES_ALL_MEMORY = """
import os
file = os.memfd_create("memory")
while True:
    os.write(file, bytes(10_000_000))
"""
"""A file in memory counts for the container and for no process, so the kernel ends the largest one: the trainer."""


@pytest.fixture
def corpus(jobs: Jobs) -> str:
    """Where a text of many rows lies in the bucket."""
    buffer = pa.BufferOutputStream()
    rows = [f"row {number} " + "x" * (number % 100) for number in range(ROWS)]
    pq.write_table(pa.table({"text": rows}), buffer, row_group_size=2000)
    jobs.storage.write(f"{DATA}/rows/rows.parquet", buffer.getvalue().to_pybytes())
    return f"gs://{jobs.storage.name}/{DATA}/rows/*.parquet"


def test_lost_workers_leave_nothing_undone(jobs: Jobs, corpus: str) -> None:
    trainer = {
        "task": "extract",
        "model": {"layers": 2, "embedDim": 64, "heads": 2},
        "data": {"path": corpus, "tokenizer": "bytes"},
        "sequenceLength": 128,
        "batchSize": 4,
        "extract": {"layers": ["0-1"], "unitRows": UNIT_ROWS, "leaseSeconds": 10, "scratchBytes": 100_000_000},
    }
    with held_unit(lambda name, claim: jobs.storage.write(f"{jobs.namespace}/features/{name}", claim)):
        jobs.apply(
            "features", accelerator="cpu:1x1", workers=WORKERS, checkpointDir=jobs.checkpoint_dir("features"),
            trainer=trainer, resources={"limits": {"memory": "2Gi"}},
        )  # fmt: skip
        jobs.wait("features", "units done", lambda status: (status.get("progress.units") or {}).get("done", 0) > 0)
        pods = {pod["metadata"]["name"]: pod for pod in jobs.pods("features")}
        assert len(pods) == WORKERS
        deleted, killed, *_ = sorted(pods)
        jobs.cluster.kubectl("delete", "pod", deleted, f"--namespace={jobs.namespace}", "--grace-period=0", "--force")
        with pytest.raises(CommandError) as end:
            jobs.run_inside(killed, TAKES_ALL_MEMORY)
        wait_for(
            "the kernel's word",
            lambda: _was_out_of_memory(jobs, killed),
            explain=lambda: f"{end.value}\n{jobs.explain('features')}",
        )
        assert jobs.status("features")["phase"] == "Running"

    status = jobs.wait_phase("features", "Succeeded", seconds=3 * PATIENCE_SECONDS)

    done = [name for name in jobs.objects("features", "done/") if name.endswith(".json")]
    assert status["progress.units"]["done"] == status["progress.units"]["total"] == len(done) == ROWS // UNIT_ROWS
    results = [json.loads(jobs.storage.read(f"{jobs.namespace}/features/{name}")) for name in done]
    assert sum(result["rows"] for result in results) == ROWS
    files = jobs.objects("features", "out/")
    assert all(files[file["name"]] == file["bytes"] for result in results for file in result["files"])


def _was_out_of_memory(jobs: Jobs, pod: str) -> bool:
    """Whether the container was ended for its memory; the Job keeps the pod as a failed one."""
    found = next(each for each in jobs.pods("features") if each["metadata"]["name"] == pod)
    state = found["status"]["containerStatuses"][0]["state"]
    return (state.get("terminated") or {}).get("reason") == "OOMKilled"
