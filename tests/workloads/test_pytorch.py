"""examples/pytorch under `tpujob run`: a real PyTorch finds its place, and a stopped run goes on as if it never was.

`make pytorch` installs PyTorch into .cache/reference first.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.workloads.example_run import FOR_EVER, ROOT, ExampleRun
from tools.localcluster.waiting import wait_for

PYTHON = ROOT / ".cache" / "reference" / "bin" / "python"
EXAMPLE = ROOT / "examples" / "pytorch.yaml"
SCRIPT = ROOT / "examples" / "pytorch" / "train.py"

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _installed() -> None:
    if not PYTHON.exists():
        pytest.skip("PyTorch is not installed; `make pytorch` does it")


class Run(ExampleRun):
    """examples/pytorch.yaml, or another command in its place."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, EXAMPLE)

    def start(self, steps: int, *command: str) -> subprocess.Popen[str]:
        job = self.job()
        job["spec"]["command"] = [*(command or (str(PYTHON), str(SCRIPT)))]
        job["spec"]["env"] = [{"name": "STEPS", "value": str(steps)}, {"name": "OMP_NUM_THREADS", "value": "1"}]
        return self.run(job)

    def logs(self) -> str:
        return "".join(file.read_text() for file in self.folder.glob(".tpujob/default/*/logs/*/process-*.log"))


def test_a_stopped_pytorch_goes_on_with_the_same_losses(tmp_path: Path) -> None:
    stopped = Run(tmp_path / "stopped")
    run = stopped.start(FOR_EVER)
    wait_for("a step", stopped.steps, timeout_seconds=300)
    run.send_signal(signal.SIGTERM)
    assert stopped.end(run, code=75)["phase"] == "Suspended"
    left = stopped.steps()[-1]["step"]

    steps = left + 10
    assert stopped.end(stopped.start(steps))["phase"] == "Succeeded"
    resumed = stopped.steps()
    assert [line["from"] for line in resumed] == [left] * 10

    undisturbed = Run(tmp_path / "undisturbed")
    assert undisturbed.end(undisturbed.start(steps))["phase"] == "Succeeded"
    expected = {line["step"]: line["loss"] for line in undisturbed.steps()}
    assert sorted(expected) == list(range(1, steps + 1))
    assert {line["step"]: line["loss"] for line in resumed} == {
        step: expected[step] for step in range(left + 1, steps + 1)
    }


def test_torchrun_meets_the_other_hosts_by_its_variables(tmp_path: Path) -> None:
    script = tmp_path / "meet.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.tensor(float(dist.get_rank() + 1))\n"
        "dist.all_reduce(total)\n"
        "print(f'rank {dist.get_rank()} of {dist.get_world_size()} has {total.item():g}', flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    met = Run(tmp_path / "met")
    torchrun = (str(PYTHON), "-m", "torch.distributed.run", "--nproc-per-node=2", str(script))
    assert met.end(met.start(0, *torchrun))["phase"] == "Succeeded"
    told = sorted(line for line in met.logs().splitlines() if line.startswith("rank "))
    # 1 + 2 + 3 + 4, of two processes on each of two hosts.
    assert told == [f"rank {rank} of 4 has 10" for rank in range(4)], os.linesep.join(told)
