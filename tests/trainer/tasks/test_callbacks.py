"""Objects of the user's own in the trainer's loop: when they are called, with what, and how their mistakes end."""

import csv
import json
import sys
from pathlib import Path

import pytest

from tests.trainer.tasks.test_pretrain import run, text
from tpujob_trainer.values.errors import ConfigurationError, TrainerError

__all__ = ["text"]
pytestmark = pytest.mark.usefixtures("compiled_once", "code")

CODE = '''
import json
import jax
import jax.numpy as jnp

class Norm:
    """The norm of all weights, and a line for each call."""

    def __init__(self, lines, scale=1.0):
        self.lines, self.scale = lines, scale

    def __call__(self, step, weights, metrics):
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(each)) for each in jax.tree.leaves(weights)))
        with open(self.lines, "a") as file:
            file.write(json.dumps({"step": step, "metrics": metrics}) + "\\n")
        return {"norm": self.scale * norm}

class Broken:
    def __call__(self, step, weights, metrics):
        raise KeyError("head")

class Wordy:
    def __call__(self, step, weights, metrics):
        return {"norm": "large"}

class Silent:
    def __call__(self, step, weights, metrics):
        return None

class Nothing:
    pass

def top1(logits, targets):
    return jnp.argmax(logits, -1) == targets

def surprise(logits, targets):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], -1)[:, 0]
'''


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_callbacks.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_callbacks", raising=False)


def test_they_see_step_weights_and_metrics_and_their_numbers_are_kept(text: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    often = {"name": "my_callbacks:Norm", "everySteps": 2, "arguments": {"lines": str(lines), "scale": 2.0}}
    at_the_end = {"name": "my_callbacks:Silent"}
    code, _ = run(text, tmp_path / "checkpoints", steps=5, logEverySteps=1, callbacks=[often, at_the_end])
    assert code == 0
    found = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [each["step"] for each in found] == [2, 4, 5]
    assert set(found[0]["metrics"]) == {"loss", "gradient_norm", "learning_rate", "tokens"}
    with (tmp_path / "checkpoints" / "metrics.csv").open() as file:
        rows = {int(row["step"]): row for row in csv.DictReader(file)}
    kept = {step: row["callback/norm"] for step, row in rows.items() if row["callback/norm"]}
    assert sorted(kept) == [2, 4, 5]
    assert all(float(value) > 0 for value in kept.values())
    for each in found:
        assert each["metrics"]["loss"] == pytest.approx(float(rows[each["step"]]["train/loss"]), rel=1e-5)


def test_metrics_of_ones_own_choose_the_checkpoints_that_stay(
    text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    metrics = [{"name": "my_callbacks:top1"}, {"name": "my_callbacks:surprise"}]
    directory = tmp_path / "checkpoints"
    code, _ = run(
        text,
        directory,
        steps=5,
        logEverySteps=1,
        evaluation={"everySteps": 1, "batches": 1, "metrics": metrics},
        checkpoint={"everySteps": 1, "keep": 1, "keepBest": 1, "bestMetric": "surprise", "bestMode": "max"},
    )
    assert code == 0
    with (directory / "metrics.csv").open() as file:
        rows = {int(row["step"]): row for row in csv.DictReader(file)}
    assert sorted(rows) == [1, 2, 3, 4, 5]
    top1 = float(rows[5]["evaluation/top1"])
    assert 0 < top1 <= 1
    assert f"top1 {top1:.6g}, surprise" in caplog.text
    surprise = {step: float(row["evaluation/surprise"]) for step, row in rows.items()}
    for step, row in rows.items():
        assert surprise[step] == pytest.approx(float(row["evaluation/loss"]), rel=1e-5)
    # The model learns, so the highest is the first.
    assert max(surprise, key=surprise.__getitem__) == 1
    assert {int(path.name) for path in (directory / "steps").iterdir()} == {1, 5}
    kept = json.loads((directory / "metrics" / "1.json").read_text())
    assert kept["surprise"] == pytest.approx(surprise[1], rel=1e-6)


RAISES = {
    "Broken": (TrainerError, r"callbacks\[0\]\.name: my_callbacks:Broken raised KeyError: 'head' after step 2"),
    "Wordy": (TrainerError, r"my_callbacks:Wordy returned a dict after step 2; return numbers by name"),
    "Norm": (ConfigurationError, r"callbacks\[0\]\.arguments: my_callbacks:Norm\(\) failed: TypeError"),
    "Nothing": (ConfigurationError, r"my_callbacks:Nothing gives a Nothing, which cannot be called"),
    "Norms": (ConfigurationError, r"callbacks\[0\]\.name: my_callbacks has no 'Norms'; it has "),
}


@pytest.mark.parametrize("name", RAISES)
def test_mistake_is_named_as_theirs(text: Path, name: str) -> None:
    error, said = RAISES[name]
    with pytest.raises(error, match=said):
        run(text, None, steps=2, callbacks=[{"name": f"my_callbacks:{name}"}])
