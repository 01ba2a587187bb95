"""A short round of `make random-pod-faults`: what must hold does."""

import random
from pathlib import Path

import pytest

from benchmarks import random_pod_faults
from benchmarks.random_pod_faults import Round
from tests.e2e.surroundings import Surroundings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("in_place_restarts", [0, 1000], ids=["anew", "in place"])
def test_what_must_hold_does_after_a_kill_and_a_deletion(
    surroundings: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place_restarts: int
) -> None:
    if not surroundings.is_own:
        pytest.skip("looks at the processes of the node of `make cluster`")
    faults = ["kill -9", "deleted pod"]
    monkeypatch.setattr(random_pod_faults, "FAULTS_OF_ROUND", len(faults))
    monkeypatch.setattr(random_pod_faults, "MOMENT_SECONDS", 1.0)
    chance = random.Random(1)  # noqa: S311
    chosen = iter(faults)
    monkeypatch.setattr(chance, "choice", lambda among: next(chosen))
    tmp_path.chmod(0o755)
    played = Round("plain JAX", 2, in_place_restarts, chance, tmp_path)
    played.play(surroundings, float("inf"))
    assert [each.is_in_place for each in played.struck] == [in_place_restarts > 0] * 2
