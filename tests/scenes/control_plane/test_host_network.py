"""Several slices on the network of their nodes, where no NetworkPolicy applies: the status says so."""

from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess, bind_own_writes
from tools.localcluster.control_plane import ControlPlane

pytestmark = pytest.mark.control_plane


def test_pods_on_the_nodes_network_are_not_called_isolated(
    jobs: Jobs, installed: ControlPlane, operator_directory: Path
) -> None:
    bind_own_writes(installed, {"jobs": {"multislice": {"hostNetwork": True}}})
    with OperatorProcess(installed, operator_directory, OPERATOR_MULTISLICE_HOST_NETWORK="true"):
        jobs.create("llama", accelerator="v6e-16", slices=2)
        jobs.create("small", accelerator="v6e-16")
        status = jobs.wait("llama", "Isolated", lambda s: "HostNetwork" in str(s.get("conditions")))
        pod = jobs.wait_pods("llama", 2)[0]  # one of each slice: the others wait for its node
        other = jobs.wait_phase("small", "Starting")
    bind_own_writes(installed)
    isolated = next(c for c in status["conditions"] if c["type"] == "Isolated")
    assert isolated["status"] == "False"
    assert pod["spec"]["hostNetwork"] is True
    assert "Isolated" not in [c["type"] for c in other["conditions"]]
