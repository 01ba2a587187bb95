"""A short round of `make random-pod-faults`: what must hold does."""

import random
from pathlib import Path

import pytest

from benchmarks.random_pod_faults import Round
from tests.e2e.surroundings import Surroundings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("in_place", [False, True], ids=["anew", "in place"])
def test_what_must_hold_does_after_a_kill_and_a_deletion(
    surroundings: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    if not surroundings.is_own:
        pytest.skip("looks at the processes of the node of `make cluster`")
    faults = ["kill -9", "deleted pod"]
    monkeypatch.setattr(Round, "most_faults", len(faults))
    monkeypatch.setattr(Round, "moment_seconds", 1.0)
    chance = random.Random(1)  # noqa: S311
    chosen = iter(faults)
    monkeypatch.setattr(chance, "choice", lambda among: next(chosen))
    tmp_path.chmod(0o755)
    played = Round("plain JAX", 2, in_place=in_place, chance=chance, folder=tmp_path)
    assert [each.is_in_place for each in played.play(float("inf"))] == [in_place] * 2
