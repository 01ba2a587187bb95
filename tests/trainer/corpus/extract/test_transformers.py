"""Every site of models of several families, beside what transformers' modules gave to forward hooks."""

import jax
import numpy as np
import pytest

from tests.trainer.corpus.extract.make_reference import FAMILIES, FOLDER, PROMPT
from tests.trainer.corpus.extract.rows_apart import one_to_a_sequence
from tests.trainer.model.weights.test_load import loaded
from tpujob_trainer.corpus.extract.layers import Kind, sites_of
from tpujob_trainer.corpus.extract.programs import activations_program

KINDS: list[Kind] = ["residual", "attention", "mlp"]


def _kept(family: str, layers: list[int | str], kinds: list[Kind]) -> dict[str, np.ndarray]:
    model, weights = loaded(family)
    forward = activations_program(
        model, weights, sites_of(layers, kinds, model.shape.layers), positions="all", dtype="float32"
    )
    tokens = np.zeros((8, 16), dtype=np.int32)
    tokens[:, : len(PROMPT)] = PROMPT
    lengths = np.full(8, len(PROMPT), dtype=np.int32)
    outputs = jax.device_get(forward(one_to_a_sequence(tokens, lengths)))
    return {column: kept["values"][0, : len(PROMPT)] for column, kept in outputs.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_values_equal_transformers(family):
    with np.load(FOLDER / f"{family}.npz") as expected:
        layers = sum(name.endswith("_residual") for name in expected)
        found = _kept(family, [f"0-{layers - 1}"], KINDS) | _kept(family, ["embedding", "norm"], ["residual"])
        assert sorted(found) == sorted(expected)
        for column, values in found.items():
            np.testing.assert_allclose(values, expected[column], rtol=1e-4, atol=2e-5, err_msg=column)
