import pytest

from tools.localcluster import binaries
from tools.localcluster.toolchain import ToolsUnavailable


@pytest.fixture(scope="session", autouse=True)
def helm() -> None:
    """Skips what needs Helm where it cannot be had."""
    try:
        binaries.path("helm")
    except ToolsUnavailable as reason:
        pytest.skip(f"no Helm: {reason}")
