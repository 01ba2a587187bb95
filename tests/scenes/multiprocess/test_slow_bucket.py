"""A bucket that does not answer at all for a while: no step waits, and a claim that was lost meanwhile ends the run."""

import json
import re

import pytest

from tests.harness import processes
from tests.multiprocess.storage_proxy import STALL, StorageProxy
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.processes

PROCESSES = 2
STEP = re.compile(r"/steps/(\d+)/")


def step_of(request):
    """Of the save that a request belongs to; 0 for others."""
    found = STEP.search(f"/{request.name}/")
    return int(found[1]) if found else 0


def test_steps_go_on_while_the_bucket_is_silent_and_a_lost_claim_commits_nothing(bucket, tmp_path):
    proxy = StorageProxy(bucket, PROCESSES)
    run = processes.start(
        tmp_path / "run",
        processes=PROCESSES,
        devices=1,
        config={"steps": 10_000_000, "save_every": 20, "step_seconds": 0.01, "limit_seconds": 600, "wait_seconds": 0},
        checkpoint_dir=f"gs://{bucket.name}/slow",
        program=("-m", "tests.multiprocess.counting_run"),
        extra_of=proxy.environment,
    )

    def wait(text):
        """Until the text is in the log of process 0."""

        def found():
            assert all(member.poll() is None for member in run.members), run.explain()
            return re.search(text, run[0].log)

        wait_for(text, found, timeout_seconds=processes.PATIENCE_SECONDS, explain=run.explain)

    def silent_save():
        """The step of a save none of whose requests was answered, nor any later one, while more steps were taken."""
        begun = max(map(step_of, list(proxy.requests)))
        silent: list[int] = []

        def is_silent(request):
            if step_of(request) > begun:
                silent.append(step_of(request))
            return bool(silent)

        proxy.fail(STALL, is_silent)
        wait_for("a save", lambda: silent, timeout_seconds=processes.PATIENCE_SECONDS, explain=run.explain)
        wait(rf"Step \d+ is not saved: step {silent[0]} is still being saved")
        return silent[0]

    with run:
        try:
            wait(r" committed (\d+)")
            step = silent_save()
            proxy.heal()
            wait(rf" committed {step}\b")

            step = silent_save()
            bucket.write("slow/lease.json", json.dumps({"run": "1.1-other", "holder": "attempt 1.1-other"}).encode())
            proxy.heal()
            assert run.wait() == [78] * PROCESSES, run.explain()
        finally:
            proxy.close()
    assert "another run has taken over" in run[0].termination_message
    assert f"slow/steps/{step}/commit_success.txt" not in bucket.objects("slow/steps/")
