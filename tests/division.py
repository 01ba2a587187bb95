"""How tests are divided among the workers of xdist: what belongs together is played by one of them.

xdist 3.8 has groups for this (`--dist loadgroup`), which silently do nothing with pytest 9.2 (pytest-xdist #1386).
"""

import functools
import zlib
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[1]
CONTROL_PLANE = "control_plane"
"""A name that stands in the files whose tests use it. They are two groups, each with a control plane: it is started as
seldom as may be, and one worker alone would play them long after the others have finished."""
E2E = "tests/e2e/"
"""Each of them is for itself, but for those that tell of one job."""
SCENARIOS = ("tests/e2e/test_quickstart.py", "tests/e2e/test_training.py")


def group(test: str) -> str:
    """What a test belongs to, by its id: the control plane, its file, or nothing but itself."""
    file, _, _ = test.partition("::")
    if file.startswith(E2E):
        return file if file in SCENARIOS else test
    return f"{CONTROL_PLANE} {zlib.adler32(file.encode()) % 2}" if _uses_control_plane(file) else file


@functools.cache
def _uses_control_plane(file: str) -> bool:
    return CONTROL_PLANE in (ROOT / file).read_text()


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands whole groups to workers, in the order in which the tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
