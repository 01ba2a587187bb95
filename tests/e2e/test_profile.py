"""`tpujob profile` in real pods: through the API server to the kubelet, and the files back on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


def test_profile_is_saved_and_fetched(jobs: Jobs, tmp_path: Path) -> None:
    jobs.train("job", steps=FOR_EVER)
    jobs.wait("job", "a step", lambda status: status.get("step"))
    command = [sys.executable, "-m", "tpujob", "profile", "job", "-n", jobs.namespace, "--steps", "3", "--all"]
    taken = subprocess.run(
        [*command, "--to", str(tmp_path)],
        env={**os.environ, "KUBECONFIG": jobs.surroundings.kubeconfig},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert taken.returncode == 0, taken.stderr
    for host in (0, 1):
        assert f"slice 0 host {host}: saved in {jobs.checkpoint_dir('job')}/profiles" in taken.stdout
        [trace] = tmp_path.rglob(f"process-{host}.xplane.pb")
        assert trace.stat().st_size > 1000
    stored = jobs.objects("job", "profiles/")
    assert len(stored) == 4, stored
