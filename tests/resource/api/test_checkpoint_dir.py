"""What a checkpointDir that is none is answered with: the form to write, or the very value."""

import pytest

from tests.operator.manifests import manifest
from tpujob_resource.rules.load import load_job
from tpujob_resource.topology.errors import InvalidJob

FORM = "is neither gs://BUCKET/PATH nor an absolute path; write one of them"
CONSOLE = "https://console.cloud.google.com/storage/browser"


@pytest.mark.parametrize(
    ("given", "advised"),
    [
        ("https://storage.googleapis.com/my-bucket/llama", "write gs://my-bucket/llama"),
        ("https://storage.cloud.google.com/my-bucket/llama/", "write gs://my-bucket/llama/"),
        ("https://my-bucket.storage.googleapis.com/llama", "write gs://my-bucket/llama"),
        ("http://my-bucket.storage.googleapis.com", "write gs://my-bucket"),
        (f"{CONSOLE}/my-bucket/llama;tab=objects?prefix=&project=mine", "write gs://my-bucket/llama"),
        ("https://storage.googleapis.com/b", FORM),
        ("https://example.com/my-bucket", FORM),
        ("s3://my-bucket/llama", FORM),
        ("checkpoints", FORM),
        ("gs://my-bucket/my run", "has spaces; leave them out"),
    ],
)
def test_refused_directory_is_answered_with_what_to_write(given: str, advised: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        load_job(manifest(checkpointDir=given))
    (problem,) = refused.value.problems
    assert problem.startswith("spec.checkpointDir: ")
    assert problem.endswith(advised)


@pytest.mark.parametrize(
    "given", ["https://storage.googleapis.com/my-bucket/llama", f"{CONSOLE}/my-bucket/llama?project=mine"]
)
def test_advised_directory_is_taken(given: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        load_job(manifest(checkpointDir=given))
    load_job(manifest(checkpointDir=refused.value.problems[0].rpartition(" write ")[2]))
