"""What cannot work is said in the status within half a minute: on which host, what, and what to do.

The time is counted from when the cause is there: from the pod's place on a node for an image; from the start of its
process for a bucket or a path, so that the process' own start counts; from the exit for an exit code.
"""

import datetime
import json
import re

import pytest

from tests.e2e.jobs import PATIENCE, Jobs
from tools.localcluster.api import Object

pytestmark = [pytest.mark.e2e, pytest.mark.core, pytest.mark.timeout(1200)]

SOON = datetime.timedelta(seconds=30) * PATIENCE


def test_image_that_cannot_be_pulled_is_named(jobs: Jobs) -> None:
    jobs.apply("job", image="localhost:1/missing:1", command=["true"])

    status = jobs.wait("job", "a word about the image", lambda status: "missing:1" in said(status))
    now = datetime.datetime.now(datetime.UTC)

    assert now - min(scheduled(pod) for pod in jobs.pods("job")) < SOON
    words = said(status)
    assert "ImagePull" in words or "ErrImage" in words
    assert re.search(r"slice 0 host [01]\b", words)  # both wait for it: whichever was looked at first
    assert "spec.image" in words


@pytest.mark.parametrize(
    ("missing", "named", "advice"),
    [("bucket", "no-such-bucket", "create"), ("data", "nothing/*.parquet", "spec.trainer.data.path")],
)
def test_place_that_does_not_exist_is_named(jobs: Jobs, missing: str, named: str, advice: str) -> None:
    fields: dict[str, Object] = {
        "bucket": {"checkpointDir": "gs://no-such-bucket/job"},
        "data": {"trainer": {"data": {"path": f"gs://{jobs.storage.name}/nothing/*.parquet"}}},
    }
    jobs.train("job", steps=5, **fields[missing])

    status = jobs.wait_phase("job", "Failed")

    assert failed_at(status) - started(jobs, status) < SOON
    words = said(status)
    assert named in words
    assert advice in words
    assert status["failure"]["exitCode"] in (77, 78)
    assert status["failure"]["host"].startswith("slice 0 host ")


def test_wrong_configuration_is_passed_on(jobs: Jobs) -> None:
    program = "import os, signal, sys\nif os.environ['TPUJOB_HOST'] == '0': signal.pause()\n"
    program += "print('--depth: -3 is not allowed; give 1 to 128')\nsys.exit(78)"
    jobs.run("job", program, gracePeriodSeconds=15)

    status = jobs.wait_phase("job", "Failed")

    assert failed_at(status) - datetime.datetime.fromisoformat(status["failure"]["time"]) < SOON
    words = said(status)
    assert "slice 0 host 1" in words
    assert "78, configuration wrong" in words
    assert "--depth: -3 is not allowed; give 1 to 128" in words
    assert "apply it again" in words


def said(status: Object) -> str:
    """What a person reads."""
    conditions = [condition["message"] for condition in status.get("conditions", [])]
    return json.dumps([status.get("message", ""), *conditions], ensure_ascii=False)


def failed_at(status: Object) -> datetime.datetime:
    (failed,) = (condition for condition in status["conditions"] if condition["type"] == "Failed")
    return datetime.datetime.fromisoformat(failed["lastTransitionTime"])


def scheduled(pod: Object) -> datetime.datetime:
    (condition,) = (each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
    return datetime.datetime.fromisoformat(condition["lastTransitionTime"])


def started(jobs: Jobs, status: Object) -> datetime.datetime:
    """When the process that failed first was started; a terminal JobSet keeps the pods of the Job that failed."""
    (pod,) = (pod for pod in jobs.pods("job") if pod["metadata"]["name"] == status["failure"]["pod"])
    (container,) = (each for each in pod["status"]["containerStatuses"] if each["name"] == "main")
    return datetime.datetime.fromisoformat(container["state"]["terminated"]["startedAt"])
