import pytest

from tests.cluster import binaries
from tests.cluster.toolchain import ToolsUnavailable


@pytest.fixture(scope="session", autouse=True)
def helm() -> None:
    """Skips what needs Helm where it cannot be had."""
    try:
        binaries.path("helm")
    except ToolsUnavailable as reason:
        pytest.skip(f"no Helm: {reason}")
