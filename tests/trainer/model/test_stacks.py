"""A decoder whose first layers have no experts: what is kept of layers does not depend on where its stacks meet."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer.model.weights.make_reference import PROMPT
from tests.trainer.model.weights.test_load import loaded

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.mark.parametrize("stretches", [[(0, 3)], [(0, 1), (1, 3)], [(0, 2), (2, 3)]], ids=str)
def test_stretches_over_two_stacks_keep_what_each_layer_adds(stretches: list[tuple[int, int]]) -> None:
    model, weights = loaded("deepseek-v3")
    shape = model.shape
    ids = jnp.asarray([PROMPT])
    inputs = (ids, jnp.arange(len(PROMPT))[None], jnp.ones_like(ids))
    assert [(stack.name, stack.first, stack.end) for stack in shape.stacks] == [
        ("dense_layers", 0, 1),
        ("layers", 1, 3),
    ]

    kept = ("attention", "mlp", "residual")

    @jax.jit
    def traced():
        trace = model.trace(weights, *inputs, [(first, end, kept) for first, end in stretches])
        return trace.embedding, trace.outputs, trace.norm

    embedding, outputs, norm = traced()
    hidden, _ = jax.jit(lambda: model.hidden(weights, *inputs))()
    np.testing.assert_allclose(norm, hidden, atol=1e-5)
    found = {name: np.concatenate([each[name] for each in outputs]) for name in kept}
    assert found["residual"].shape == (3, 1, len(PROMPT), shape.embed_dim)
    before = np.concatenate([np.asarray(embedding)[None], found["residual"][:-1]])
    np.testing.assert_allclose(found["residual"], before + found["attention"] + found["mlp"], atol=1e-5)
