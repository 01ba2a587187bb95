"""Two processes that save without a pause are killed at random moments, again and again, in one directory."""

import contextlib
import random
import re
import time

import pytest

from tests.harness import processes
from tests.multiprocess.storage_proxy import StorageProxy
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.processes

COUNTING = ("-m", "tests.multiprocess.counting_run")
OWN_PART = re.compile(r"/(?:ocdbt\.|array_metadatas/)process_(\d+)")
ENDLESS = 1_000_000
PROCESSES = 2
LATEST_SECONDS = {"bucket": 3.0, "local": 1.0}
"""Some saves fit into the time until a kill."""
ROUNDS = [pytest.param(10, seed, marks=pytest.mark.faults) for seed in range(1, 6)]
"""Fifty kills, in five directories."""


def kill_again_and_again(folder, kind, count, seed, directory, environment_of):
    """The logs of process 0 of all attempts, the last of which is killed when it has restored."""
    dice = random.Random(seed)  # noqa: S311 - moments, not secrets
    logs = []
    with contextlib.ExitStack() as stack:

        def start(attempt):
            """Its processes import what they need, and wait for the gate."""
            gate = folder / f"gate-{attempt}"
            run = processes.start(
                folder / str(attempt),
                processes=PROCESSES,
                devices=1,
                config={"steps": ENDLESS, "save_every": 1},
                checkpoint_dir=directory,
                attempt=attempt,
                program=COUNTING,
                extra={"GATE": str(gate)},
                extra_of=environment_of,
            )
            return stack.enter_context(run), gate

        following = start(0)
        for attempt in range(count + 1):
            run, gate = following
            gate.touch()
            if attempt < count:
                following = start(attempt + 1)
            # Something is there to be lost.
            wait_until(run, " counting" if attempt else " committed ")
            pass_time(dice.uniform(0, LATEST_SECONDS[kind]) if attempt < count else 0)
            # One of them first, and the other has a moment to do something with it.
            processes.kill(run[dice.randrange(PROCESSES)])
            pass_time(dice.uniform(0, 0.2))
            run.stop()
            logs.append(run[0].log)
    return logs


def wait_until(run, text):
    def found():
        assert all(member.poll() is None for member in run.members), run.explain()
        return text in run[0].log

    wait_for(text, found, timeout_seconds=processes.PATIENCE_SECONDS, explain=run.explain)


def pass_time(seconds):
    """The moment is what is random here: there is nothing to wait for."""
    end = time.monotonic() + seconds
    wait_for("a moment", lambda: time.monotonic() >= end)


def check(logs):
    """Every attempt goes on from a state that is what it was, and no older than the last commit that was told."""
    committed = 0
    for log in logs:
        step, value = re.findall(r"restored=(\w+) value=([0-9.]+)", log)[0]
        assert step != "None" or committed == 0
        found = 0 if step == "None" else int(step)
        assert found >= committed
        assert float(value) == found
        committed = max([found, *map(int, re.findall(r" committed (\d+)", log))])
    assert committed > 0


@pytest.mark.parametrize(("count", "seed"), [(2, 0), *ROUNDS])
def test_killed_bucket_run_goes_on_from_its_last_commit(tmp_path, bucket, count, seed):
    proxy = StorageProxy(bucket, PROCESSES)
    try:
        where = f"gs://{bucket.name}/kills-{seed}"
        check(kill_again_and_again(tmp_path, "bucket", count, seed, where, proxy.environment))
    finally:
        proxy.close()
    written = [request for request in proxy.requests if request.is_write and request.method != "DELETE"]
    shared: dict[str, set[int]] = {}
    own: dict[str, set[int]] = {}
    for name, who in proxy.writers(written).items():
        (own if OWN_PART.search(name) else shared)[name] = who
    # Everything that processes share has one writer; each has one part of its own, which nobody else writes.
    assert shared
    assert {name: who for name, who in shared.items() if who != {0}} == {}
    assert set().union(*own.values()) == {0, 1}
    for name, who in own.items():
        part = OWN_PART.search(name)
        assert part is not None
        assert who <= {0, int(part[1])} if name.endswith("/") else who == {int(part[1])}, name


@pytest.mark.parametrize(("count", "seed"), [(2, 0), *ROUNDS])
def test_killed_local_run_goes_on_from_its_last_commit(tmp_path, count, seed):
    check(kill_again_and_again(tmp_path, "local", count, seed, tmp_path / "checkpoints", lambda index: {}))
