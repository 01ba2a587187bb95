"""A file of the data that goes away while two processes train: told at once, waited for, named in the end."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.multiprocess import attempts
from tests.multiprocess.attempts import ENDLESS, committed
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.processes

EVERY = 10
RETRY_SECONDS = 60
"""Enough to notice that the file is away, and to put it back."""


class Scenario(attempts.Scenario):
    """What was said while a file was away, and how that ended."""

    def __init__(self, folder, config):
        super().__init__(folder, config)
        self.told: dict[str, str] = {}
        self.committed = 0
        self.codes: list[int] = []
        self.last: dict = {}
        self.resumed: dict = {}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory, trainer_block):
    """Attempt 0: a file is gone for some seconds, then it is cut for good. Attempt 1: it is whole again."""
    folder = tmp_path_factory.mktemp("faults")
    for number in range(8):
        texts = [f"{number:02d}-{row:03d} is one document of thirty." for row in range(16)]
        (folder / "data").mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": texts}), folder / "data" / f"{number}.parquet", row_group_size=2)
    source = {"path": f"{folder}/data/*.parquet", "retrySeconds": RETRY_SECONDS}
    scenario = Scenario(folder, trainer_block(steps=ENDLESS, every_steps=EVERY, data=source))
    file = folder / "data" / "5.parquet"
    with scenario.attempt(devices=1) as run:
        run.wait_for_report("a commit", committed(EVERY))
        file.rename(folder / "away")
        scenario.told["gone"] = wait_for_message(run)
        (folder / "away").rename(file)
        for index in range(len(run.members)):
            back = run.wait_for_report("no message", lambda report: report["data_slow_message"] is None, index=index)
        later = run.wait_for_report("a later commit", committed(back["step"] + EVERY))
        content = file.read_bytes()
        file.write_bytes(content[:100])  # of a file that is open, only what is cut away is missed
        scenario.told["cut"] = wait_for_message(run)
        scenario.committed = later["committed_step"]
        scenario.codes = run.wait()
    scenario.last = scenario.ending(0)
    file.write_bytes(content)
    with scenario.attempt(devices=1) as run:
        scenario.resumed = run.wait_for_report(
            "more steps", lambda report: report["step"] > (report["restored_from"] or ENDLESS)
        )
    return scenario


def wait_for_message(run):
    """The first message about the file, of any process: which one reads it next is up to the order."""

    def told():
        reports = filter(None, (member.report() for member in run.members))
        messages = [report["data_slow_message"] or "" for report in reports]
        return next((message for message in messages if "/5.parquet" in message), None)

    return wait_for("a message about the file", told, explain=run.explain_lateness)


def says_nothing_of_the_file(report):
    return "/5.parquet" not in (report["data_slow_message"] or "")


def test_trouble_is_told_while_it_lasts(scenario):
    assert "/5.parquet" in scenario.told["gone"]
    assert "/5.parquet" in scenario.told["cut"]


def test_all_leave_with_the_code_of_what_is_not_there(scenario):
    assert scenario.codes == [77, 77], scenario.attempts[0].explain()
    for member in scenario.attempts[0].members:
        assert "5.parquet" in member.termination_message
        assert "spec.trainer.data.path" in member.termination_message


def test_what_was_committed_is_kept(scenario):
    assert scenario.last["committed_step"] >= scenario.committed
    # A save that was under way may have become a checkpoint after the last report.
    assert scenario.resumed["restored_from"] >= scenario.last["committed_step"]


def test_ending_is_kept_beside_the_checkpoint(scenario):
    assert scenario.last["exit_code"] == 77
    assert "5.parquet" in scenario.last["message"]
