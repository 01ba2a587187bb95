"""Models that transformers wrote compute here what they compute there."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer.model.weights.make_reference import FAMILIES, FOLDER, PROMPT
from tests.trainer.model.weights.running import greedy, logits
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh import build_mesh
from tpujob_trainer.model.weights.load import load_weights, read_shape

pytestmark = pytest.mark.usefixtures("compiled_once")

TOLERANCE = 1e-4
"""Of float32 logits between 1 and 20."""


def load(folder: Path):
    shape = read_shape(str(folder), remat="none", compute_dtype="float32")
    model = Model(shape, build_mesh(slices=1))
    return model, load_weights(str(folder), shape, model.abstract_weights, model.shardings)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_equal_those_of_transformers(name):
    model, weights = load(FOLDER / name)
    expected = np.array(json.loads((FOLDER / name / "expected.json").read_text())["logits"])

    found = logits(model, weights, PROMPT)

    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0)
    assert jax.tree.map(jnp.shape, weights) == jax.tree.map(jnp.shape, model.abstract_weights)


@pytest.mark.parametrize("name", FAMILIES)
def test_generation_equals_that_of_transformers(name):
    model, weights = load(FOLDER / name)
    expected = json.loads((FOLDER / name / "expected.json").read_text())["generated"]

    assert greedy(model, weights, PROMPT, len(expected)) == expected
