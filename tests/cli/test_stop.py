"""What `tpujob stop`, `resume` and `retry` wait for."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from typer.testing import CliRunner

from tpujob.cluster import watch
from tpujob.cluster.client import Cluster
from tpujob.main import app


class OneJob(Cluster):
    """A cluster whose one job is seen in one state after the other, the last of which stays."""

    def __init__(self, *seen: tuple[int, str]) -> None:
        super().__init__(None, "default")
        self._seen = iter(seen)
        self._now = next(self._seen)

    def job(self, name: str) -> dict[str, Any]:
        generation, phase = self._now
        self._now = next(self._seen, self._now)
        return {"metadata": {"name": name}, "spec": {}, "status": {"observedGeneration": generation, "phase": phase}}

    def patch(self, path: str, change: Mapping[str, Any]) -> dict[str, Any]:
        return {**change, "metadata": {"name": path.rpartition("/")[2], "generation": 2}}


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    monkeypatch.setattr(watch, "INTERVAL_SECONDS", 0.0)

    def run(verb: str, *seen: tuple[int, str]) -> list[str]:
        monkeypatch.setattr(Cluster, "connect", lambda **_: OneJob(*seen))
        done = CliRunner().invoke(app, [verb, "llama", "--wait"])
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()[1:]

    return run


def test_a_retried_job_is_waited_for_until_it_runs(shell) -> None:
    seen = [(1, "Failed"), (1, "Failed"), (2, "Queued"), (2, "Running")]
    assert shell("retry", *seen) == ["Failed", "Queued", "Running"]


def test_the_end_of_a_retried_job_ends_the_waiting(shell) -> None:
    assert shell("retry", (1, "Failed"), (1, "Failed"), (2, "Queued"), (2, "Failed")) == ["Failed", "Queued", "Failed"]


def test_a_job_that_is_stopped_again_is_waited_for_until_it_rests(shell) -> None:
    seen = [(1, "Suspended"), (1, "Suspended"), (2, "Stopping"), (2, "Suspended")]
    assert shell("stop", *seen) == ["Suspended", "Stopping", "Suspended"]
