"""Storage that stalls, is overloaded and refuses, while two processes train: they go on, say so, and end in time."""

import re
from pathlib import Path

import pytest

from tests.harness import processes
from tests.multiprocess.storage_proxy import STALL, StorageProxy
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.processes

COUNTING = ("-m", "tests.multiprocess.counting_run")
PROCESSES = 2
LIMIT_SECONDS = 10
"""After which a save has failed."""
FAIL_AFTER_SECONDS = 75
"""Of the last commit's age; two saves may fail before the storage is well again."""
NOTICE_SECONDS = 15.0
"""On top of the limit, on a busy machine."""
BLOCKING_SECONDS = 5.0
"""No save may keep a step waiting for longer, whatever storage does; most of it is two processes on busy cores."""


class Scenario:
    """One run, and the lines that each fault added to the logs of both processes."""

    def __init__(self, run, proxy):
        self.run, self.proxy = run, proxy
        self.added: dict[str, list[str]] = {}
        self.stalled_step = 0
        self.codes: list[int] = []
        self._read = [0] * PROCESSES

    def wait(self, text, *, members=range(PROCESSES)):
        """The lines since the last call, once the text is among them in each process."""

        def found():
            lines = [self.run[i].log[self._read[i] :] for i in range(PROCESSES)]
            if all(re.search(text, lines[i]) for i in members):
                return lines
            assert all(member.poll() is None for member in self.run.members), self.run.explain()
            return None

        lines = wait_for(text, found, timeout_seconds=processes.PATIENCE_SECONDS, explain=self.run.explain)
        self._read = [len(member.log) for member in self.run.members]
        return lines


@pytest.fixture(scope="module")
def scenario(bucket, tmp_path_factory):
    proxy = StorageProxy(bucket, PROCESSES)
    config = {
        "steps": 10_000_000,
        "save_every": 50,
        "step_seconds": 0.01,
        "limit_seconds": LIMIT_SECONDS,
        "wait_seconds": 0,
        "fail_after_seconds": FAIL_AFTER_SECONDS,
    }
    run = processes.start(
        tmp_path_factory.mktemp("storage") / "run",
        processes=PROCESSES,
        devices=1,
        config=config,
        checkpoint_dir=f"gs://{bucket.name}/storage",
        program=COUNTING,
        extra_of=proxy.environment,
    )
    with run:
        try:
            yield played(Scenario(run, proxy))
        finally:
            proxy.close()


def played(scenario):
    proxy = scenario.proxy
    # On a busy machine the very first one may be given up.
    committed = int(re.findall(r" committed (\d+)", scenario.wait(" committed ")[0])[-1])

    # In the middle of a commit: everything is written but the marker of the step. Later steps are not touched.
    stalled: list[str] = []

    def first_marker(request):
        marker = re.search(r"steps/(\d+)/commit_success.txt$", request.name)
        if request.is_write and marker and int(marker[1]) > committed and not stalled:
            stalled.append(request.name)
        return request.is_write and request.name in stalled

    proxy.fail(STALL, first_marker)
    wait_for("a marker", lambda: stalled, timeout_seconds=processes.PATIENCE_SECONDS, explain=scenario.run.explain)
    scenario.stalled_step = int(Path(stalled[0]).parent.name)
    scenario.added["stall"] = scenario.wait(rf" failed {scenario.stalled_step}: ")
    scenario.added["after stall"] = scenario.wait(" committed ")
    proxy.heal()
    scenario.wait(" committed ")

    for status in (429, 503):
        proxy.fail(status)
        scenario.added[str(status)] = scenario.wait(r" failed \d+: ")
        proxy.heal()
        scenario.added[f"after {status}"] = scenario.wait(" committed ")

    # A permission that does not come back.
    proxy.fail(403)
    scenario.codes = scenario.run.wait()
    return scenario


def test_save_that_never_ends_is_noticed_within_its_time(scenario):
    for lines in scenario.added["stall"]:
        assert f" failed {scenario.stalled_step}: not committed within {LIMIT_SECONDS} s" in lines
    begun = seconds(scenario.run[0].log, rf"saved {scenario.stalled_step} ")
    for member in scenario.run.members:
        noticed = seconds(member.log, rf" failed {scenario.stalled_step}: ") - begun
        assert noticed < LIMIT_SECONDS + NOTICE_SECONDS


def test_next_save_succeeds_while_that_one_still_hangs(scenario):
    for lines in scenario.added["after stall"]:
        (step, *_) = re.findall(r" committed (\d+)", lines)
        assert int(step) > scenario.stalled_step


@pytest.mark.parametrize("status", ["429", "503"])
def test_failing_storage_fails_the_save_and_not_the_run(scenario, status):
    for lines in scenario.added[status]:
        assert re.search(r" failed \d+: ", lines)
    for lines in scenario.added[f"after {status}"]:
        assert " committed " in lines


def test_training_never_waits_for_storage(scenario):
    for member in scenario.run.members:
        # The first one compiles.
        blocking = [float(found) for found in re.findall(r"saved \d+ blocking ([0-9.]+)", member.log)][1:]
        assert len(blocking) > 10
        assert max(blocking) < BLOCKING_SECONDS


def test_run_ends_with_77_when_storage_refuses_for_too_long(scenario):
    assert scenario.codes == [77] * PROCESSES, scenario.run.explain()
    for member in scenario.run.members:
        assert len(re.findall(r" failed \d+: ", member.log)) > 3, "it went on for a while"
        assert "spec.checkpointDir: saves to gs://" in member.termination_message
        assert "fail, and nothing was committed for" in member.termination_message
        assert "403" in member.termination_message or "fault" in member.termination_message


def seconds(log, text):
    """Of the day, at which the first such line was written."""
    found = re.search(rf"(\d\d):(\d\d):(\d\d),(\d\d\d) .*{text}", log)
    assert found is not None, text
    hours, minutes, whole, thousandths = map(int, found.groups())
    return hours * 3600 + minutes * 60 + whole + thousandths / 1000
