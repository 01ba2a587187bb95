"""A short night of few blows on the real control plane, among `make faults`; the long ones are `make nights`."""

from pathlib import Path

import pytest

from tests.nights.invariants import broken
from tests.nights.player import play
from tests.nights.schedule import THIN, make_night
from tests.nights.stage import Stage
from tools.localcluster import binaries
from tools.localcluster.kueue import can_run_here
from tools.localcluster.toolchain import ToolsUnavailable

pytestmark = [pytest.mark.control_plane, pytest.mark.faults]

SEED, SECONDS, JOBS = 1, 30, 6


def test_a_short_night_breaks_nothing(tmp_path: Path) -> None:
    if not can_run_here():
        pytest.skip("no Kueue: it needs Linux, and user namespaces or root")
    try:
        binaries.build_all(print, (*binaries.CONTROL_PLANE, *binaries.QUEUE))
    except ToolsUnavailable as reason:
        pytest.skip(f"no control plane: {reason}")
    with Stage(tmp_path) as stage:
        history = play(stage, make_night(SEED, seconds=SECONDS, jobs=JOBS, blows=THIN))
    assert broken(history) == []
    # Something happened: blows fell, attempts ended, and jobs were seen to run.
    assert len({struck.blow.kind for struck in history.struck}) >= 3
    assert len(history.ends) >= JOBS
    assert {"Running", "Succeeded"} <= {each.facts["status"].get("phase") for each in history.of("job")}
