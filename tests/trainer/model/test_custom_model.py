"""Modules of the user's own: what is accepted, what is refused and in which words, and how they are divided."""

from __future__ import annotations

import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.trainer.train.test_step import SGD, make_batch
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.custom_model import CustomModel, custom_shape
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.shape import MeshShape
from tpujob_trainer.model.shape import ModelConfig
from tpujob_trainer.train.step import init_state, make_train_step

pytestmark = pytest.mark.usefixtures("compiled_once")


class Bigrams(nnx.Module):  # type: ignore[misc]  # flax has no types
    """Flax's own layers, with the names of axes as flax has them."""

    def __init__(self, width: int = 16, *, vocab_size: int, rngs: nnx.Rngs) -> None:
        named = nnx.with_partitioning(nnx.initializers.normal(0.1), ("vocab", "embed"))
        self.embed = nnx.Embed(vocab_size, width, rngs=rngs, embedding_init=named)
        kernel = nnx.with_partitioning(nnx.initializers.normal(0.1), ("embed", "mlp"))
        self.layers = nnx.List([nnx.Linear(width, vocab_size, kernel_init=kernel, rngs=rngs)])

    def __call__(self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array) -> Any:
        return self.layers[0](self.embed(tokens))


class Pair(Bigrams):
    """The same, with the output matrix apart."""

    def __call__(self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array) -> Any:
        return self.embed(tokens), self.layers[0].kernel[...]


class Unnamed(Bigrams):
    def __init__(self, *, vocab_size: int, rngs: nnx.Rngs) -> None:
        super().__init__(vocab_size=vocab_size, rngs=rngs)
        self.table = nnx.Param(jnp.zeros((3, 4)))


class Dropping(Bigrams):
    def __init__(self, *, vocab_size: int, rngs: nnx.Rngs) -> None:
        super().__init__(vocab_size=vocab_size, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)


class Narrow(Bigrams):
    def __call__(self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array) -> Any:
        return super().__call__(tokens, positions, segment_ids)[..., :-1]


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of these, importable as a user's are."""
    made = types.ModuleType("theirs")
    vars(made).update(
        {kind.__name__: kind for kind in (Bigrams, Pair, Unnamed, Dropping, Narrow)},
        number=3,
        function=lambda vocab_size, rngs: vocab_size,
    )
    monkeypatch.setitem(sys.modules, "theirs", made)


def own_model(name: str, mesh: MeshShape, **arguments: Any) -> CustomModel:
    config = ModelConfig(custom=f"theirs:{name}", arguments=arguments)
    shape = custom_shape(config, vocabulary=32, platform="cpu")
    return CustomModel(shape, build_mesh(slices=1, devices=jax.devices()[: int(np.prod(mesh.sizes))], shape=mesh))


def test_embeddings_are_not_told_from_other_weights() -> None:
    shape = own_model("Bigrams", MeshShape()).shape
    assert (shape.num_parameters > 0, shape.vocabulary_parameters) == (True, 0)


@pytest.mark.parametrize("name", ["Bigrams", "Pair"], ids=["logits", "hidden states and output"])
@pytest.mark.parametrize("mesh", [MeshShape(fsdp=8), MeshShape(data=2, fsdp=2, tensor=2)], ids=["fsdp 8", "2 x 2 x 2"])
def test_steps_do_not_depend_on_the_mesh(name: str, mesh: MeshShape) -> None:
    found = []
    for each in (MeshShape(), mesh):
        model = own_model(name, each)
        step = make_train_step(model, SGD, lambda _: 1.0, clip_norm=1.0, z_loss=1e-3)
        state = init_state(model, SGD, 0)
        losses = []
        for _ in range(3):
            state, metrics = step(state, make_batch())
            losses.append(float(metrics.loss))
        found.append(losses)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    assert found[0][-1] < found[0][0]


def test_weights_are_divided_by_their_names() -> None:
    model = own_model("Bigrams", MeshShape(fsdp=4, tensor=2))
    state = init_state(model, SGD, 0)
    assert state.weights["embed"]["embedding"].addressable_shards[0].data.shape == (128, 4)
    assert state.weights["layers"]["0"]["kernel"].addressable_shards[0].data.shape == (4, 64)
    assert state.weights["layers"]["0"]["bias"].addressable_shards[0].data.shape == (128,)
    assert model.shape.num_parameters == 2 * 128 * 16 + 128


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("Missing", {}, "theirs has no 'Missing'; it has Bigrams, Dropping"),
        ("number", {}, "theirs:number is a int, which cannot be called"),
        ("function", {}, "theirs:function makes a int; it must make an nnx.Module"),
        ("Bigrams", {"depth": 2}, r"theirs:Bigrams\(depth, vocab_size, rngs\) failed: TypeError: .*'depth'"),
        ("Unnamed", {}, r"table of theirs:Unnamed does not name its dimensions, and has \[3, 4\]; write nnx.Param"),
        ("Dropping", {}, r"dropout.rngs.count of theirs:Dropping is a RngCount; everything .* must be an nnx.Param"),
    ],
)
def test_what_is_no_model_is_refused(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^spec.trainer.model.custom: {message}"):
        own_model(name, MeshShape(), **arguments)


def test_module_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ConfigurationError, match="no module named 'nobody_has_it' is installed or on PYTHONPATH; submit"
    ):
        custom_shape(ModelConfig(custom="nobody_has_it.model:Decoder"), vocabulary=32, platform="cpu")


def test_logits_of_another_shape_are_refused() -> None:
    model = own_model("Narrow", MeshShape())
    step = make_train_step(model, SGD, lambda _: 1.0, clip_norm=1.0)
    with pytest.raises(ConfigurationError, match=r"gives \[16, 6, 127\] for tokens \[16, 6\]; it must give logits"):
        step(init_state(model, SGD, 0), make_batch())


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"model": {"custom": "theirs"}}, 'model.custom: "theirs" is not module:name; write it as in'),
        (
            {"model": {"custom": "a:B", "layers": 2}},
            "model.layers: excludes custom, whose module says it by its arguments",
        ),
        (
            {"model": {"preset": "tiny", "arguments": {"a": 1}}},
            "model.arguments: are those of custom, which is missing",
        ),
        ({"model": {"custom": "a:B", "arguments": [1]}}, "model.arguments: \\[1\\] is not a block of keys"),
        ({"loss": "my loss"}, 'loss: "my loss" is not module:name'),
        ({"loss": "a:b", "zLoss": 1e-4}, "zLoss: excludes loss"),
        ({"optimizer": {"custom": "a"}}, 'optimizer.custom: "a" is not module:name'),
        ({"optimizer": {"arguments": {"a": 1}}}, "optimizer.arguments: are those of custom, which is missing"),
    ],
)
def test_fields_that_contradict_are_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^spec.trainer.{message}"):
        parse_config({"model": {"preset": "tiny"}, "data": {"path": "x"}, "steps": 1} | block)
