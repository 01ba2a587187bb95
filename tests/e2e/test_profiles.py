"""Other people's images run unchanged where Kubernetes enforces its strictest pod security profile."""

import pytest

from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.e2e, pytest.mark.core, pytest.mark.timeout(1200)]


@pytest.fixture
def namespace_labels() -> dict[str, str]:
    return {"pod-security.kubernetes.io/enforce": "restricted"}


def test_other_image_runs_under_the_restricted_profile(jobs: Jobs) -> None:
    program = """
import json, os
open(os.environ["HOME"] + "/file", "w").close()
print(json.dumps({"user": os.getuid()}))
"""

    jobs.run("job", program)

    jobs.wait_phase("job", "Succeeded")
    assert jobs.told(jobs.pods("job")[0])["user"] > 0
