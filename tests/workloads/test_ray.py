"""examples/ray.yaml under `tpujob run`: a real Ray of two hosts, stopped, resumed, and ended by its program.

`make ray` installs Ray into .cache/ray first.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workloads.example_run import FOR_EVER, ROOT, ExampleRun
from tools.localcluster.waiting import wait_for

BIN = ROOT / ".cache" / "ray" / "bin"
EXAMPLE = ROOT / "examples" / "ray.yaml"
SCRIPT = "examples/ray/train.py"
ALONE = ("unshare", "--map-root-user", "--net", "bash", "-c", 'ip link set lo up && exec "$@"', "bash")
"""A network of its own for a command: Ray listens on all addresses, whatever it is told."""

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _installed() -> None:
    if not (BIN / "ray").exists():
        pytest.skip("Ray is not installed; `make ray` does it")


@pytest.fixture
def ray_folder() -> Iterator[Path]:
    """Where Ray keeps its sockets, whose paths may not be long; nothing that was started there is alive afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    try:
        yield folder
        wait_for("an end of all of Ray's processes", lambda: not processes("RAY_TMPDIR", str(folder)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def processes(variable: str, value: str) -> list[int]:
    """Those whose environment has this variable with this value."""
    wanted, found = f"{variable}={value}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # gone, or somebody else's
    return sorted(found)


class Run(ExampleRun):
    """examples/ray.yaml with another program or none."""

    def __init__(self, folder: Path, ray_folder: Path) -> None:
        super().__init__(folder, EXAMPLE)
        self.ray_folder = ray_folder

    def start(self, *, steps: int = 0, script: Path = ROOT / SCRIPT, token: str | None = None) -> subprocess.Popen[str]:
        job = self.job()
        line = job["spec"]["command"][-1]
        assert line.count(SCRIPT) == 1
        job["spec"]["command"][-1] = line.replace(SCRIPT, str(script))
        variables = {"STEPS": steps, "RAY_TMPDIR": self.ray_folder}
        job["spec"]["env"] += [{"name": name, "value": str(value)} for name, value in variables.items()]
        environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        if token:
            environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        return self.run(job, before=ALONE, environ=environ)


def test_a_stopped_program_goes_on_with_the_same_losses(tmp_path: Path, ray_folder: Path) -> None:
    stopped = Run(tmp_path / "stopped", ray_folder)
    run = stopped.start(steps=FOR_EVER)
    wait_for("a step", stopped.steps, timeout_seconds=300)
    run.send_signal(signal.SIGTERM)
    assert stopped.end(run, code=75)["phase"] == "Suspended"
    left = stopped.steps()[-1]["step"]

    steps = left + 10
    assert stopped.end(stopped.start(steps=steps))["phase"] == "Succeeded"
    resumed = stopped.steps()
    assert [(line["from"], line["hosts"]) for line in resumed] == [(left, 2)] * 10

    undisturbed = Run(tmp_path / "undisturbed", ray_folder)
    assert undisturbed.end(undisturbed.start(steps=steps))["phase"] == "Succeeded"
    expected = {line["step"]: line["loss"] for line in undisturbed.steps()}
    assert sorted(expected) == list(range(1, steps + 1))
    # Sums over hosts may differ in their last bits from run to run; a step that is lost or repeated is 8 % of the loss.
    assert {line["step"]: line["loss"] for line in resumed} == pytest.approx(
        {step: expected[step] for step in range(left + 1, steps + 1)}, rel=1e-3, abs=1e-6
    )


def test_a_request_to_one_host_stops_the_program_of_all(tmp_path: Path, ray_folder: Path) -> None:
    stopped = Run(tmp_path / "stopped", ray_folder)
    run = stopped.start(steps=FOR_EVER)
    wait_for("a step", stopped.steps, timeout_seconds=300)
    second = set(processes("TPUJOB_HOST", "1")) & set(processes("RAY_TMPDIR", str(ray_folder)))
    os.kill(min(second), signal.SIGTERM)  # the launcher, which was there before what it started
    assert stopped.end(run, code=75)["phase"] == "Suspended"
    (checkpoint,) = stopped.folder.glob(".tpujob/default/*/checkpoints/newest.json")
    assert json.loads(checkpoint.read_text())["step"] == stopped.steps()[-1]["step"]


@pytest.mark.parametrize("code", [0, 3])
def test_the_job_ends_as_its_program_does(code: int, tmp_path: Path, ray_folder: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import ray\n"
        "from ray.util.placement_group import placement_group\n"
        "ray.init(log_to_driver=False)\n"
        "ray.get(placement_group([{'host': 1}] * 2, strategy='STRICT_SPREAD').ready())\n"
        f"raise SystemExit({code})\n"
    )
    ended = Run(tmp_path / "ended", ray_folder)
    run = ended.start(script=script, token=secrets.token_hex(32))
    assert ended.end(run, code=code)["phase"] == ("Failed" if code else "Succeeded")
