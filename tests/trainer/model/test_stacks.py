"""A decoder whose first layers have no experts: what is kept of layers does not depend on where its stacks meet."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer.model.weights.make_reference import FOLDER, PROMPT
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.weights.load import load_weights, read_shape

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.mark.parametrize("stretches", [[(0, 3)], [(0, 1), (1, 3)], [(0, 2), (2, 3)]], ids=str)
def test_stretches_over_two_stacks_keep_what_each_layer_adds(stretches: list[tuple[int, int]]) -> None:
    source = str(FOLDER / "deepseek-v3")
    shape = read_shape(source, remat="none", compute_dtype="float32")
    model = Model(shape, build_mesh(slices=1, devices=jax.devices()[:1]))
    weights = load_weights(source, shape, model.abstract_weights, model.shardings)
    ids = jnp.asarray([PROMPT])
    inputs = (ids, jnp.arange(len(PROMPT))[None], jnp.ones_like(ids))
    assert [(stack.name, stack.first, stack.end) for stack in shape.stacks] == [
        ("dense_layers", 0, 1),
        ("layers", 1, 3),
    ]

    kept = ("attention", "mlp", "residual")
    trace = model.trace(weights, *inputs, [(first, end, kept) for first, end in stretches])

    hidden, _ = jax.jit(lambda: model.hidden(weights, *inputs))()
    np.testing.assert_allclose(trace.norm, hidden, atol=1e-5)
    found = {name: np.concatenate([each[name] for each in trace.outputs]) for name in kept}
    assert found["residual"].shape == (3, 1, len(PROMPT), shape.embed_dim)
    before = np.concatenate([np.asarray(trace.embedding)[None], found["residual"][:-1]])
    np.testing.assert_allclose(found["residual"], before + found["attention"] + found["mlp"], atol=1e-5)
