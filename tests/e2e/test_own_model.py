"""The model, the loss and the optimizer of docs/own-model.md in real pods, with no image of their own."""

from pathlib import Path

import pytest

from tests.docs.test_own_model import BLOCK, FILES
from tests.e2e.code import repository, stored
from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

STEPS = 40
OWN = {name: BLOCK[name] for name in ("model", "loss", "optimizer")}


def test_model_of_ones_own_trains_on_two_hosts(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = stored(jobs, repository(tmp_path, FILES), monkeypatch)
    jobs.train("own", steps=STEPS, code=code, trainer=OWN)
    status = jobs.wait_phase("own", "Succeeded")
    assert (status["step"], status["codeSha256"]) == (STEPS, code["sha256"])
    (attempt,) = jobs.attempts("own")
    assert (attempt["exit_code"], attempt["committed_step"]) == (0, STEPS)
    assert attempt["loss"] < attempt["loss_first"] - 0.5
    assert '"custom": "my_model:Decoder"' in jobs.logs(jobs.pods("own")[0])
