"""`tpujob exec` in real pods: through the API server to the kubelet, on all hosts or one."""

import os
import subprocess
import sys

import pytest

from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

WAITS = "import signal\nsignal.pause()"
TELL = """
import os, sys
print("here", int(os.environ["TPUJOB_SLICE"]) * 2 + int(os.environ["TPUJOB_HOST"]))
print("there", file=sys.stderr)
"""


def execute(jobs: Jobs, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tpujob", "exec", "job", "-n", jobs.namespace, *arguments]
    environment = {**os.environ, "KUBECONFIG": jobs.surroundings.kubeconfig}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_command_runs_on_all_hosts_or_one(jobs: Jobs) -> None:
    jobs.run("job", WAITS, slices=2, gracePeriodSeconds=15)
    jobs.wait_phase("job", "Running")

    everywhere = execute(jobs, "--", "python3", "-c", TELL)
    assert everywhere.returncode == 0, everywhere.stderr
    places = [f"slice {slice_index} host {host} | " for slice_index in (0, 1) for host in (0, 1)]
    expected = [f"{place}here {number}" for number, place in enumerate(places)]
    assert sorted(everywhere.stdout.splitlines()) == expected
    assert sorted(everywhere.stderr.splitlines()) == [f"{place}there" for place in places]

    one = execute(jobs, "--slice", "1", "--host", "0", "--", "python3", "-c", TELL)
    assert (one.stdout, one.stderr) == ("here 2\n", "there\n")

    failing = execute(
        jobs, "--host", "1", "--", "python3", "-c", "import os, sys; sys.exit(int(os.environ['TPUJOB_SLICE']) * 7)"
    )
    assert failing.returncode == 7
    assert failing.stderr == "slice 1 host 1 | exit code 7\n"

    missing = execute(jobs, "--slice", "0", "--host", "0", "--", "/nowhere")
    assert missing.returncode == 1
    assert "/nowhere" in missing.stderr
