"""The launcher finds a framework's committed checkpoints in a bucket, with the standard library."""

import time

import pytest

from tests.multiprocess.bucket import Bucket
from tpujob_launcher.reports.orbax_steps import COMMITTED, newest

pytestmark = pytest.mark.processes


def test_only_committed_steps_of_a_bucket_count(bucket: Bucket) -> None:
    folder, prefix = f"gs://{bucket.name}/steps/run/checkpoints", "steps/run/checkpoints"
    assert newest(folder, bucket.environment) is None
    for name in ("0/items/a", f"0/{COMMITTED}", "50/items/a", f"50/{COMMITTED}", "100/items/a", f"other/{COMMITTED}"):
        bucket.write(f"{prefix}/{name}", b"x")
    found = newest(folder, bucket.environment)
    assert found is not None
    assert found[0] == 50
    assert abs(found[1] - time.time()) < 60
