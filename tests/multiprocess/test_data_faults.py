"""A file of the data that goes away while two processes train: told at once, waited for, named in the end."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.multiprocess import attempts
from tests.multiprocess.attempts import ENDLESS, committed
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.processes

EVERY = 10
RETRY_SECONDS = 10


class Story(attempts.Story):
    """What was said while a file was away, and how that ended."""

    def __init__(self, folder, config):
        super().__init__(folder, config)
        self.told: dict[str, str] = {}
        self.committed = 0
        self.codes: list[int] = []
        self.last: dict = {}
        self.resumed: dict = {}


@pytest.fixture(scope="module")
def story(tmp_path_factory, trainer_block):
    """Attempt 0: a file is gone for some seconds, then it is cut for good. Attempt 1: it is whole again."""
    folder = tmp_path_factory.mktemp("faults")
    for number in range(8):
        texts = [f"{number:02d}-{row:03d} is one document of thirty." for row in range(16)]
        (folder / "data").mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": texts}), folder / "data" / f"{number}.parquet", row_group_size=2)
    source = {"path": f"{folder}/data/*.parquet", "retrySeconds": RETRY_SECONDS}
    story = Story(folder, trainer_block(steps=ENDLESS, every_steps=EVERY, data=source))
    file = folder / "data" / "5.parquet"
    with story.attempt(devices=1) as run:
        run.wait_for_report("a commit", committed(EVERY), limit_seconds=240)
        file.rename(folder / "away")
        story.told["gone"] = wait_for_message(run)
        (folder / "away").rename(file)
        for index in range(len(run.members)):
            back = run.wait_for_report("no message", lambda report: report["data_slow_message"] is None, index=index)
        later = run.wait_for_report("a later commit", committed(back["step"] + EVERY), limit_seconds=60)
        content = file.read_bytes()
        file.write_bytes(content[:100])  # of a file that is open, only what is cut away is missed
        story.told["cut"] = wait_for_message(run)
        story.committed = later["committed_step"]
        story.codes = run.wait(limit_seconds=60)
    story.last = story.ending(0)
    file.write_bytes(content)
    with story.attempt(devices=1) as run:
        story.resumed = run.wait_for_report(
            "more steps", lambda report: report["step"] > (report["restored_from"] or ENDLESS)
        )
    return story


def wait_for_message(run):
    """The first message about the file, of any process: which one reads it next is up to the order."""

    def told():
        reports = filter(None, (member.report() for member in run.members))
        messages = [report["data_slow_message"] or "" for report in reports]
        return next((message for message in messages if "/5.parquet" in message), None)

    return wait_for("a message about the file", told, timeout_seconds=60, explain=run.explain_lateness)


def says_nothing_of_the_file(report):
    return "/5.parquet" not in (report["data_slow_message"] or "")


def test_trouble_is_told_while_it_lasts(story):
    assert "/5.parquet" in story.told["gone"]
    assert "/5.parquet" in story.told["cut"]


def test_all_leave_with_the_code_of_what_is_not_there(story):
    assert story.codes == [77, 77], story.attempts[0].explain()
    for member in story.attempts[0].members:
        assert "5.parquet" in member.termination_message
        assert "spec.trainer.data.path" in member.termination_message


def test_what_was_committed_is_kept(story):
    assert story.last["committed_step"] >= story.committed
    # A save that was under way may have become a checkpoint after the last report.
    assert story.resumed["restored_from"] >= story.last["committed_step"]


def test_ending_is_kept_beside_the_checkpoint(story):
    assert story.last["exit_code"] == 77
    assert "5.parquet" in story.last["message"]
