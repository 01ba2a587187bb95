"""`inPlaceRestarts` in real pods: a crash costs no pod, a lost pod is replaced alone.

A final code ends all, and a crash over the budget costs the pods.
"""

import pytest

from tests.e2e.jobs import FOR_EVER, Jobs
from tests.e2e.test_training import are_all_new, delete, kill
from tests.e2e.waiting import wait_for
from tools.localcluster.api import Object

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

JOB = "job"
SECONDS_BETWEEN_SAVES = 3
WAITS_FOR_THE_LEASE = "is still alive"
"""In the log of a run that does not know whether the one before it has ended; it waits for 15 s."""

# The second host fails once its launcher is connected to that of the first (8475 is 211B there).
SECOND_HOST_ENDS = """
import os, signal, sys, time
def launchers_have_met():
    lines = [line.split() for line in open("/proc/net/tcp")]
    return any(line[2].endswith(":211B") and line[3] == "01" for line in lines)
ends = os.environ["TPUJOB_HOST"] == "1" and os.environ["TPUJOB_ATTEMPT"] == "0"
while ends and not launchers_have_met():
    time.sleep(0.05)
{then}
signal.pause()
"""

# JAX's exit handler waits for the other process, which waits for this one in a sum over both.
JAX_PROGRAM = """
import os, jax, jax.numpy as jnp
from jax.experimental import multihost_utils
process = int(os.environ["JAX_PROCESS_ID"])
jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=process)
attempt = os.environ.get("TPUJOB_IN_PLACE_ATTEMPT", "0")
for step in range(8):
    total = multihost_utils.process_allgather(jnp.ones(4) * step).sum()
    print("step", step, "of attempt", attempt, flush=True)
    if (process, step, attempt) == (1, 4, "0"):
        raise RuntimeError("a fault on purpose")
"""

# As JAX's documentation has it: where one process is told to stop, all save at the same step, and return.
SAVES_AT_A_SYNC_POINT = """
import os, time, jax, jax.numpy as jnp
from jax.experimental import multihost_utils
process = int(os.environ["JAX_PROCESS_ID"])
jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=process)
attempt = os.environ.get("TPUJOB_IN_PLACE_ATTEMPT", "0")
for step in range(100_000):
    multihost_utils.process_allgather(jnp.ones(4) * step)
    if step == 5:
        print("step 5 of attempt", attempt, flush=True)
    if multihost_utils.reached_preemption_sync_point(step):
        break
    time.sleep(0.05)
"""


def uids(pods: list[Object]) -> list[str]:
    return [pod["metadata"]["uid"] for pod in pods]


def container_restarts(pods: list[Object]) -> int:
    return sum(each["restartCount"] for pod in pods for each in pod["status"]["containerStatuses"])


@pytest.mark.core
def test_killed_trainer_goes_on_in_the_same_pods(jobs: Jobs) -> None:
    jobs.train(JOB, steps=FOR_EVER, checkpoint={"everySeconds": SECONDS_BETWEEN_SAVES}, inPlaceRestarts=2)
    began = jobs.wait_until_it_trains(JOB)
    saved = jobs.wait(JOB, "a checkpoint", lambda status: (status.get("lastCheckpointStep") or 0) > began)
    before = jobs.pods(JOB)

    kill(jobs, before[1]["metadata"]["name"])

    status = jobs.wait(JOB, "an attempt in place", lambda status: status.get("restarts.inThesePods") == 1)
    restored = jobs.wait_until_it_trains(JOB)
    assert restored >= saved["lastCheckpointStep"]
    later = jobs.wait(JOB, "a later step", lambda status: (status.get("step") or 0) > restored)
    assert status["restarts.inPlaceCause"].startswith("process 1 ended with exit code 137")
    assert (later["phase"], later["restarts.total"], later["restarts.inPlace"], later.get("restarts.charged")) == (
        "Running",
        1,
        1,
        None,
    )
    after = jobs.pods(JOB)
    assert uids(after) == uids(before)
    assert container_restarts(after) == 0
    assert WAITS_FOR_THE_LEASE not in jobs.logs(after[0])


@pytest.mark.parametrize("host", [0, 1])
def test_deleted_pod_costs_no_other_pod(jobs: Jobs, host: int) -> None:
    jobs.train(JOB, steps=FOR_EVER, checkpoint={"everySeconds": SECONDS_BETWEEN_SAVES}, inPlaceRestarts=2)
    began = jobs.wait_until_it_trains(JOB)
    jobs.wait(JOB, "a checkpoint", lambda status: (status.get("lastCheckpointStep") or 0) > began)
    before = jobs.pods(JOB)

    delete(jobs, before[host]["metadata"]["name"])

    status = jobs.wait(JOB, "the attempt with the new pod", lambda status: status.get("restarts.inPlace") == 1)
    restored = jobs.wait_until_it_trains(JOB)
    assert restored > began
    after = jobs.pods(JOB)
    assert [uid in uids(before) for uid in uids(after)] == [host == 1, host == 0]
    assert (status["restarts.total"], status["restarts.disruptions"], status.get("restarts.charged")) == (1, 1, None)
    status = jobs.wait(JOB, "it to run", lambda status: status.get("phase") == "Running")
    assert not status.get("internal.bookedRestarts")


def test_exception_in_a_plain_jax_program_costs_no_pod(jobs: Jobs) -> None:
    image = jobs.surroundings.jax_image
    if image is None:
        pytest.skip("no image is given for it: build examples/any-container and name it with E2E_JAX_IMAGE")
    jobs.apply(JOB, image=image, command=["python3", "-c", JAX_PROGRAM], inPlaceRestarts=1)

    status = jobs.wait_phase(JOB, "Succeeded")

    assert (status["restarts.total"], status["restarts.inPlace"], status.get("restarts.charged")) == (1, 1, None)
    for pod in jobs.pods(JOB):
        log = jobs.logs(pod)
        assert "process 1 ended with exit code 1: RuntimeError: a fault on purpose" in log
        assert log.count("step 7 of attempt 1") == 1
        assert "step 7 of attempt 0" not in log
    assert container_restarts(jobs.pods(JOB)) == 0


def test_jax_program_that_saves_and_returns_as_one_pod_is_deleted_goes_on(jobs: Jobs) -> None:
    image = jobs.surroundings.jax_image
    if image is None:
        pytest.skip("no image is given for it: build examples/any-container and name it with E2E_JAX_IMAGE")
    jobs.apply(JOB, image=image, command=["python3", "-c", SAVES_AT_A_SYNC_POINT], inPlaceRestarts=1)
    jobs.wait_phase(JOB, "Running")
    before = jobs.pods(JOB)
    wait_for("steps", lambda: "step 5 of attempt 0" in jobs.logs(before[1]), explain=lambda: jobs.explain(JOB))

    delete(jobs, before[1]["metadata"]["name"])

    wait_for(
        "steps of the next attempt",
        lambda: "step 5 of attempt 1" in jobs.logs(before[0]),
        explain=lambda: jobs.logs(before[0]),
    )
    assert uids(jobs.pods(JOB))[0] == uids(before)[0]


def test_restart_of_a_program_without_a_report_counts_while_its_pods_run(jobs: Jobs) -> None:
    fault = "if ends and os.environ['TPUJOB_IN_PLACE_ATTEMPT'] == '0': raise RuntimeError('a fault on purpose')"
    program = SECOND_HOST_ENDS.format(then="os.environ.setdefault('TPUJOB_IN_PLACE_ATTEMPT', '0')\n" + fault)
    jobs.run(JOB, program, inPlaceRestarts=1)

    status = jobs.wait(JOB, "the restart", lambda status: status.get("restarts.inPlace"))

    assert (status["phase"], status["restarts.total"], status["restarts.inThesePods"]) == ("Running", 1, 1)
    assert "RuntimeError: a fault on purpose" in status["restarts.inPlaceCause"]
    assert [pod["status"]["phase"] for pod in jobs.pods(JOB)] == ["Running"] * 2


def test_code_that_no_restart_can_help_ends_the_job(jobs: Jobs) -> None:
    program = SECOND_HOST_ENDS.format(then="if ends: sys.exit(77)")

    jobs.run(JOB, program, inPlaceRestarts=3, gracePeriodSeconds=15)

    status = jobs.wait_phase(JOB, "Failed")
    assert (status["failure"]["host"], status["failure"]["exitCode"]) == ("slice 0 host 1", 77)
    assert not status.get("restarts.total")


def test_crash_over_the_budget_costs_the_pods(jobs: Jobs) -> None:
    program = SECOND_HOST_ENDS.format(then="if ends: sys.exit(3)")
    jobs.run(JOB, program, inPlaceRestarts=1, gracePeriodSeconds=15)
    jobs.wait(
        JOB, "an attempt", lambda status: status.get("phase") == "Running" or status.get("internal.bookedRestarts")
    )
    before = jobs.pods(JOB)

    jobs.wait(JOB, "a restart in new pods", lambda status: status.get("internal.bookedRestarts"))
    status = jobs.wait(JOB, "the second attempt", lambda status: status.get("phase") == "Running")

    assert are_all_new(jobs.pods(JOB), before)
    assert (status["restarts.total"], status["restarts.inPlace"], status["restarts.charged"]) == (2, 1, 1)
    assert status["failure"]["host"] == "slice 0 host 1"
    assert status["failure"]["exitCode"] == 3
