"""What a release before took is taken, and means the same."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tpujob_contract import kubernetes_names
from tpujob_resource.errors import InvalidJob
from tpujob_resource.jobset.build import spec_hash
from tpujob_resource.rules.load import load_job

RELEASED = Path(__file__).parents[2] / "released"
JOBS = [
    pytest.param(job, id=f"{file.stem} {number} {job['metadata']['name']}")
    for file in sorted(RELEASED.glob("jobs-*.yaml"))
    for number, job in enumerate(YAML(typ="safe", pure=True).load_all(file))
]


REFUSED_SINCE = {
    "queued": "spec.trainer.data.tokenizer: required",
    "queued-topology": "spec.trainer.data.tokenizer: required",
}
"""Names of jobs that could not have trained, with what they are told today."""


@pytest.mark.parametrize("job", JOBS)
def test_a_job_of_a_release_before_is_valid_in_both_versions(job: dict[str, Any]) -> None:
    """With one hash, so that no version makes a running job differ from what it was made from."""
    assert job["apiVersion"] == kubernetes_names.API_VERSION
    if job["metadata"]["name"] in REFUSED_SINCE:
        with pytest.raises(InvalidJob, match=REFUSED_SINCE[job["metadata"]["name"]]):
            load_job(job)
        return
    newest = {**job, "apiVersion": kubernetes_names.NEWEST_API_VERSION}
    assert spec_hash(load_job(newest)) == spec_hash(load_job(job))
