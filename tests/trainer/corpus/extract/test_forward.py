"""Against the model written a second time, one row at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer.corpus.extract.rows_apart import one_to_a_sequence
from tests.trainer.model.plain_decoder import attention, rms_norm
from tpujob_trainer.corpus.extract.layers import Kind, sites_of
from tpujob_trainer.corpus.extract.programs import activations_program
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.shape import ModelShape

SHAPE = ModelShape(layers=4, embed_dim=32, heads=4, kv_heads=2, head_dim=8, mlp_dim=64, vocab_size=256)


@pytest.fixture(scope="module")
def model():
    return Model(SHAPE, build_mesh(slices=1, devices=jax.devices()[:2]))


@pytest.fixture(scope="module")
def weights(model):
    return jax.jit(lambda: model.init(3), out_shardings=model.shardings)()


def _plain(weights, tokens):
    """The sites of one row without padding."""
    positions, segments = np.arange(len(tokens)), np.zeros(len(tokens))
    x = jnp.asarray(weights["embedding"])[tokens]
    found = {"embedding": x}
    for i in range(SHAPE.layers):
        w = jax.tree.map(lambda stacked, i=i: stacked[i], weights["layers"])
        added = attention(w["attention"], rms_norm(x, w["attention_norm"]["scale"], 1e-5), positions, segments, SHAPE)
        found[f"layer_{i}_attention"] = added
        x = x + added
        normed = rms_norm(x, w["mlp_norm"]["scale"], 1e-5)
        gate = normed @ w["mlp"]["gate"]
        found[f"layer_{i}_mlp"] = (gate / (1 + jnp.exp(-gate)) * (normed @ w["mlp"]["up"])) @ w["mlp"]["down"]
        x = x + found[f"layer_{i}_mlp"]
        found[f"layer_{i}_residual"] = x
    found["norm"] = rms_norm(x, weights["norm"]["scale"], 1e-5)
    return found


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param([0, 1, 2, 3, "embedding", "norm"], id="all"),
        pytest.param([2], id="one"),
        pytest.param([0, 2], id="two that are not neighbours"),
    ],
)
def test_values_equal_the_plain_model(model, weights, layers):
    kinds: list[Kind] = ["residual"] if "norm" in layers else ["residual", "attention", "mlp"]
    forward = activations_program(model, weights, sites_of(layers, kinds, 4), positions="all", dtype="float32")
    chance = np.random.default_rng(0)
    lengths = np.array([16, 9, 1, 16, 3, 12, 16, 5], dtype=np.int32)
    tokens = chance.integers(0, 256, (8, 16)).astype(np.int32)
    tokens[np.arange(16) >= lengths[:, None]] = 0
    outputs = forward(one_to_a_sequence(tokens, lengths))
    plain = jax.jit(_plain)
    for row in (0, 1, 2):
        # What follows a row's end changes nothing in it.
        told = plain(jax.device_get(weights), tokens[row])
        for column, kept in outputs.items():
            found, wanted = (np.asarray(each)[: lengths[row]] for each in (kept["values"][row], told[column]))
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-6, err_msg=f"{column} of row {row}")


def test_shape_is_compiled_once(model, weights):
    forward = activations_program(model, weights, sites_of([1], ["residual"], 4), positions="last", dtype="float16")
    assert forward.compiled(8, 16) is forward.compiled(8, 16)
