"""What cannot work is said in the status: where, what, and what to do."""

import json

import pytest

from tests.cluster import storage
from tests.cluster.api import Object
from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SOON_SECONDS = 30


def test_image_that_cannot_be_pulled_is_named(jobs: Jobs) -> None:
    jobs.apply("job", image="localhost:1/missing:1", command=["true"])

    status = jobs.wait(
        "job", "a word about the image", lambda status: "missing:1" in words(status), seconds=SOON_SECONDS
    )

    assert "ImagePull" in words(status) or "ErrImage" in words(status)
    assert "host" in words(status)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"checkpointDir": "gs://no-such-bucket/job"}, "no-such-bucket"),
        ({"trainer": {"data": {"path": f"gs://{storage.BUCKET}/nothing/*.parquet"}}}, "nothing/*.parquet"),
    ],
    ids=["no-such-bucket", "no-such-data"],
)
def test_place_that_does_not_exist_is_named(jobs: Jobs, fields: Object, named: str) -> None:
    jobs.train("job", steps=5, **fields)

    status = jobs.wait_phase("job", "Failed")

    assert named in words(status)
    assert status["failure"]["exitCode"] in (77, 78)
    assert status["failure"]["host"].startswith("slice 0 host ")


def words(status: Object) -> str:
    return json.dumps(status)
