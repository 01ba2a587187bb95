"""What real processes share, and a bucket."""

import pytest

from tests.multiprocess.bucket import build_emulator, emulated_bucket
from tests.multiprocess.conftest import corpus, trainer_block
from tools.localcluster.toolchain import ToolBuildError, ToolsUnavailable

__all__ = ["corpus", "trainer_block"]


def pytest_collection_finish(session):
    """Builds the emulator before the first test: that may take longer than a test may."""
    if any("bucket" in getattr(item, "fixturenames", ()) for item in session.items):
        try:
            build_emulator()
        except (ToolsUnavailable, ToolBuildError):
            return  # the fixture says it, to the tests that need it and no others


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A bucket of an emulator of Google Cloud Storage; skips where its program cannot be had."""
    try:
        build_emulator()
    except ToolsUnavailable as reason:
        pytest.skip(f"no storage emulator: {reason}")
    with emulated_bucket("tests", tmp_path_factory.mktemp("bucket")) as found:
        yield found
