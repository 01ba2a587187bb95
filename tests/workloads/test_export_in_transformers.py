"""What is exported of every family is loaded by transformers, which computes from it what the trainer computes.

`make pytorch` installs transformers into .cache/reference first.
"""

from pathlib import Path

import pytest

from tests.trainer.model.weights.make_reference import FAMILIES, FOLDER
from tests.trainer.model.weights.test_load import load
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.model.weights.companions import Companions, read_companions
from tpujob_trainer.model.weights.export import export_weights
from tpujob_trainer.model.weights.verified_export import verify_export

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(900)]

PYTHON = Path(".cache/reference/bin/python").absolute()


@pytest.mark.parametrize("is_fresh", [False, True], ids=["from a source", "fresh"])
@pytest.mark.parametrize("name", FAMILIES)
def test_logits_of_an_export_are_equal_in_transformers(tmp_path, name, is_fresh):
    model, weights = load(FOLDER / name)
    source = None if is_fresh else str(FOLDER / name)
    companions = Companions() if is_fresh else read_companions(source, DataConfig(path="/"))
    export_weights(str(tmp_path), model.shape, weights, max_positions=128, companions=companions, dtype="F32")

    found = verify_export(str(tmp_path), str(PYTHON))

    assert found["equal"], found["difference"]
