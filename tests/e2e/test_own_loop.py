"""examples/own-loop in real pods, with its code from the bucket: killed, stopped, resumed on other hosts, stalled."""

import re
from pathlib import Path

import pytest

from tests.e2e import operator_pod
from tests.e2e.code import repository, stored
from tests.e2e.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs
from tests.e2e.waiting import wait_for
from tools.localcluster.api import Object
from tpujob_contract import ExitCode

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

LOOP = (Path(__file__).parents[2] / "examples" / "own-loop" / "train.py").read_text()
STEP = "        step += 1\n"
LAST_LINE = "    checkpoints.save(step, logits)\n\n"
STEPS, SAVED_EVERY = 400, 10
"""More than are made at one a second until the loop is stopped."""
STALLED_AFTER_SECONDS = 45

KILL_LOOP = """
import os, pathlib, signal
for process in pathlib.Path("/proc").iterdir():
    if process.name.isdigit() and process.name != "1":
        if (process / "cmdline").read_bytes().split(b"\\0")[1:2] == [b"train.py"]:
            os.kill(int(process.name), signal.SIGKILL)
"""
TELL_BATCHES = """    checkpoints.save(step, logits)
    told = {"step": step, "batches": batches.state().digest}
    print(__import__("json").dumps(told), flush=True)

"""
"""At the end of the loop: the hash of all tokens of all batches so far."""
PACE = f"{STEP}        __import__('threading').Event().wait(1)\n"
HANG = f"{STEP}        if step == 7:\n            __import__('threading').Event().wait()\n"
OTHER_CODE = "import os\n\nif os.environ['TPUJOB_HOST'] == '1':\n    os.environ['TPUJOB_CODE_SHA256'] = 64 * '0'\n\n"
"""Makes the second host one that was given another archive."""


class OwnLoop:
    """The example as a job, with one of its lines edited."""

    def __init__(self, jobs: Jobs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs = jobs
        self.folder = folder
        self.monkeypatch = monkeypatch

    def apply(self, name: str, hosts: str, *, steps: int, code: str = LOOP, **spec: object) -> None:
        repository(self.folder, {"train.py": code.replace(LAST_LINE, TELL_BATCHES)})
        self.jobs.apply(
            name,
            accelerator=f"cpu:{hosts}",
            image=self.jobs.surroundings.trainer_image,
            command=["python", "train.py"],
            code=stored(self.jobs, self.folder, self.monkeypatch),
            checkpointDir=self.jobs.checkpoint_dir(name),
            env=[{"name": "TEXT", "value": self.jobs.text}, {"name": "STEPS", "value": str(steps)}],
            **spec,
        )

    def committed(self, name: str) -> set[int]:
        """Steps of the checkpoints that are there."""
        return {int(found.split("/")[1]) for found in self.jobs.objects(name, "steps/")}


@pytest.fixture
def loop(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnLoop:
    return OwnLoop(jobs, tmp_path, monkeypatch)


def losses(log: str) -> dict[int, float]:
    """What the loop printed."""
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss ([\d.]+)", log)}


def first_host(jobs: Jobs, name: str) -> Object:
    return next(pod for pod in jobs.pods(name) if pod["metadata"]["name"].startswith(f"{name}-w-0-0-"))


def test_killed_loop_resumes_on_other_hosts_with_the_same_batches(jobs: Jobs, loop: OwnLoop) -> None:
    loop.apply("undisturbed", "1x4", steps=STEPS)
    jobs.wait_phase("undisturbed", "Succeeded")
    lead = first_host(jobs, "undisturbed")
    expected, batches = losses(jobs.logs(lead)), jobs.told(lead)
    assert sorted(expected) == list(range(SAVED_EVERY, STEPS + 1, SAVED_EVERY))

    loop.apply("loop", "2x2", steps=FOR_EVER, code=LOOP.replace(STEP, PACE))
    jobs.wait("loop", "a checkpoint", lambda status: status.get("lastCheckpointStep"))
    step = jobs.status("loop")["step"]
    line = jobs.cluster.kubectl("get", "ttj", "loop", f"--namespace={jobs.namespace}").splitlines()[-1].split()
    assert line[:4] == ["loop", "cpu:2x2", "Running", "2/2"]
    assert int(line[4]) >= step
    seen = losses(jobs.logs(first_host(jobs, "loop")))
    jobs.run_inside(jobs.pods("loop")[1]["metadata"]["name"], KILL_LOOP)
    status = jobs.wait("loop", "its restart", lambda status: status.get("restarts.total"))
    assert status["restarts.charged"] == 1

    restored = jobs.wait_until_it_trains("loop")
    assert restored >= SAVED_EVERY
    wait_for("a save after it", lambda: max(loop.committed("loop")) > restored, timeout_seconds=PATIENCE_SECONDS)
    seen |= losses(jobs.logs(first_host(jobs, "loop")))
    jobs.patch("loop", suspend=True)
    jobs.wait_phase("loop", "Suspended")
    newest = max(loop.committed("loop"))
    suspended = jobs.attempts("loop")[-1]
    assert (suspended["restored_from"], suspended["exit_code"]) == (restored, ExitCode.STOPPED)
    assert newest == suspended["step"] > restored

    jobs.delete("loop")
    loop.apply("loop", "4x1", steps=STEPS)
    jobs.wait_phase("loop", "Succeeded")
    lead = first_host(jobs, "loop")
    assert f"Restored the checkpoint of step {newest}" in jobs.logs(lead)
    assert [jobs.told(pod) for pod in jobs.pods("loop")] == [batches] * 4
    seen |= losses(jobs.logs(lead))
    assert max(loop.committed("loop")) == STEPS
    for each, loss in seen.items():
        assert loss == pytest.approx(expected[each], abs=2e-4), each


def test_hosts_with_other_code_are_named_and_refused(jobs: Jobs, loop: OwnLoop) -> None:
    loop.apply("loop", "2x1", steps=STEPS, code=LOOP.replace("import os\n", OTHER_CODE, 1))
    status = jobs.wait_phase("loop", "Failed")
    message = status["failure"]["message"]
    assert "the job's code (spec.code)" in message
    assert "loop-w-0-1" in message
    assert loop.committed("loop") == set()


@pytest.mark.ends_operator
def test_loop_without_new_steps_is_stalled(jobs: Jobs, loop: OwnLoop) -> None:
    with operator_pod.with_settings(jobs, OPERATOR_STALLED_AFTER_SECONDS=str(STALLED_AFTER_SECONDS)):
        loop.apply("loop", "2x1", steps=STEPS, code=LOOP.replace(STEP, HANG))
        # A machine that compiles for long may be stalled before its first step, too.
        status = jobs.wait(
            "loop",
            "a stall after step 6",
            lambda status: status.get("phase") == "Stalled" and status.get("step") == 6,
            seconds=PATIENCE_SECONDS + 2 * STALLED_AFTER_SECONDS,
        )
    assert "No step since" in status["message"]
    (condition,) = (each for each in status["conditions"] if each["type"] == "Stalled")
    assert (condition["status"], condition["reason"]) == ("True", "NoStep")
