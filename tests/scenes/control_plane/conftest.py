"""The operator against a real API server: its resource defined, its rights granted, its process started."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess, grant_rights
from tools.localcluster.control_plane import ControlPlane


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """The control plane, which has our resource, and the operator's service account with its rights."""
    grant_rights(control_plane)
    return control_plane


@pytest.fixture(scope="module")
def operator(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """An operator for all namespaces, one for each file of tests."""
    with OperatorProcess(installed, tmp_path_factory.mktemp("operator")) as process:
        yield process


@pytest.fixture
def jobs(installed: ControlPlane, namespace: str) -> Iterator[Jobs]:
    """The jobs of a fresh namespace."""
    found = Jobs(installed, namespace)
    yield found
    found.close()


@pytest.fixture
def operator_directory(tmp_path: Path) -> Path:
    """For an operator of a test's own."""
    return tmp_path / "operator"
