"""Modules of the user's own: what is accepted, what is refused and in which words, and how they are divided."""

import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

from tests.trainer.train.test_step import SGD, make_batch
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.model.config import ModelConfig
from tpujob_trainer.model.custom_model import CustomModel, custom_shape
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.train.evaluation import make_evaluation_step
from tpujob_trainer.train.step import abstract_state, init_state, make_train_step
from tpujob_trainer.values.errors import ConfigurationError

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


class HalfNamed(Bigrams):
    def __init__(self, *, vocab_size: int, rngs: nnx.Rngs) -> None:
        super().__init__(vocab_size=vocab_size, rngs=rngs)
        self.table = nnx.Param(jnp.zeros((3, 4)), axes=("mlp",))


class Dropping(Bigrams):
    def __init__(self, rate: float = 0.5, *, vocab_size: int, rngs: nnx.Rngs) -> None:
        super().__init__(vocab_size=vocab_size, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)

    def __call__(self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array) -> Any:
        return self.layers[0](self.dropout(self.embed(tokens)))


class Twice(Dropping):
    """The difference of two dropouts of ones: 0 everywhere if they drew the same."""

    def __init__(self, *, vocab_size: int, rngs: nnx.Rngs) -> None:
        super().__init__(vocab_size=vocab_size, rngs=rngs)
        self.other = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array) -> Any:
        ones = jnp.ones((*tokens.shape, 128))
        return self.dropout(ones) - self.other(ones)


class Normalised(Bigrams):
    def __init__(self, *, vocab_size: int, rngs: nnx.Rngs) -> None:
        super().__init__(vocab_size=vocab_size, rngs=rngs)
        self.batch_norm = nnx.BatchNorm(4, rngs=rngs)


class LinenBigrams(linen.Module):  # type: ignore[misc]  # flax has no types
    """The same two layers, by `flax.linen`."""

    vocab_size: int
    width: int = 16
    rate: float = 0.0

    @linen.compact
    def __call__(self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array, *, train: bool) -> Any:
        init = linen.initializers.normal(0.1)
        named = linen.with_partitioning(init, ("vocab", "embed"))
        x = linen.Embed(self.vocab_size, self.width, embedding_init=named, name="embed")(tokens)
        x = linen.Dropout(self.rate, deterministic=not train)(x)
        kernel = linen.with_partitioning(init, ("embed", "mlp"))
        return linen.Dense(self.vocab_size, kernel_init=kernel, name="output")(x)


class LinenWithoutMode(linen.Module):  # type: ignore[misc]
    """No dropout, so nothing to say about training."""

    vocab_size: int
    keeps_more: bool = False

    @linen.compact
    def __call__(self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array) -> Any:
        if self.keeps_more:
            self.variable("cache", "seen", jnp.zeros, (2,))
        return linen.Embed(self.vocab_size, self.vocab_size)(tokens)


def functions(vocab_size: int, rate: float = 0.0, named: bool = True) -> Any:
    """The same two layers as a pair of functions over a dictionary with a list."""

    def init(key: jax.Array) -> Any:
        first, second = jax.random.split(key)
        table = 0.1 * jax.random.normal(first, (vocab_size, 16))
        return {"embed": table, "layers": [0.1 * jax.random.normal(second, (16, vocab_size)), jnp.zeros(vocab_size)]}

    def apply(weights: Any, tokens: Any, positions: Any, segment_ids: Any, dropout_key: Any = None) -> Any:
        kernel, bias = weights["layers"]
        x = weights["embed"][tokens]
        if dropout_key is not None:
            x = jnp.where(jax.random.bernoulli(dropout_key, 1 - rate, x.shape), x / (1 - rate), 0)
        return x @ kernel + bias

    axes = {"embed": ("vocab", "embed"), "layers": [("embed", "mlp"), None]}
    return (init, apply, axes) if named else (init, apply)


def wrongly_nested(vocab_size: int) -> Any:
    init, apply, _ = functions(vocab_size)
    return init, apply, {"embed": ("vocab", "embed")}


def alone(vocab_size: int) -> Any:
    """A function without anything beside it, as is no form of a model."""
    return lambda weights, tokens: tokens


class Narrow(Bigrams):
    def __call__(self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array) -> Any:
        return super().__call__(tokens, positions, segment_ids)[..., :-1]


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of these, importable as a user's are."""
    made = types.ModuleType("theirs")
    vars(made).update(
        {kind.__name__: kind for kind in (Bigrams, Pair, HalfNamed, Dropping, Twice, Narrow, Normalised)},
        **{made.__name__: made for made in (LinenBigrams, LinenWithoutMode, functions, wrongly_nested, alone)},
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


FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "logits": ("Bigrams", {}),
    "hidden states and output": ("Pair", {}),
    "dropout": ("Dropping", {}),
    "linen": ("LinenBigrams", {}),
    "linen with dropout": ("LinenBigrams", {"rate": 0.5}),
    "functions": ("functions", {}),
    "functions with dropout": ("functions", {"rate": 0.5}),
    "functions without names": ("functions", {"named": False}),
}


@pytest.mark.parametrize("form", FORMS)
def test_steps_do_not_depend_on_the_mesh(form: str) -> None:
    found = []
    for each in (MeshShape(), MeshShape(fsdp=2, tensor=2)):
        model = own_model(FORMS[form][0], each, **FORMS[form][1])
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


@pytest.mark.parametrize(("name", "arguments"), [("LinenWithoutMode", {}), ("functions", {"named": False})])
def test_weights_without_names_are_divided_by_their_sizes(name: str, arguments: dict[str, Any]) -> None:
    """The longest dimension that the devices divide, the first of equal ones; vectors are whole."""
    model = own_model(name, MeshShape(fsdp=4), **arguments)
    weights = jax.tree.leaves(init_state(model, SGD, 0).weights)
    for weight in weights:
        expected = list(weight.shape)
        if weight.ndim > 1:
            expected[expected.index(128)] //= 4
        assert list(weight.addressable_shards[0].data.shape) == expected
    assert len(model.shape.unnamed) == sum(weight.ndim > 1 for weight in weights)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("Missing", {}, "theirs has no 'Missing'; it has Bigrams, Dropping"),
        ("number", {}, "theirs:number is a int, which cannot be called"),
        ("function", {}, "theirs:function makes a int; it must make an nnx.Module, a linen Module, or two functions"),
        ("alone", {}, "theirs:alone makes a function; it must make an nnx.Module, a linen Module, or two functions"),
        ("Bigrams", {"depth": 2}, r"theirs:Bigrams\(depth, vocab_size, rngs\) failed: TypeError: .*'depth'"),
        ("HalfNamed", {}, r"table of theirs:HalfNamed names its dimensions .* and has \[3, 4\]; write nnx.Param"),
        ("Normalised", {}, r"batch_norm.mean of theirs:Normalised is a BatchStat; everything .* must be an nnx.Param"),
        ("LinenWithoutMode", {"keeps_more": True}, "theirs:LinenWithoutMode keeps cache beside params; everything"),
        ("LinenBigrams", {"depth": 2}, r"theirs:LinenBigrams\(depth, vocab_size\) failed: TypeError: .*'depth'"),
        ("wrongly_nested", {}, "axes of theirs:wrongly_nested are not nested as its weights: .*"),
    ],
)
def test_what_is_no_model_is_refused(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^spec.trainer.model.custom: {message}"):
        own_model(name, MeshShape(), **arguments)


@pytest.mark.parametrize("name", ["Dropping", "LinenBigrams", "functions"])
def test_dropout_is_for_training_alone_and_other_in_each_step_and_part(name: str) -> None:
    """With weights that stay, the loss of a step is that of its dropout alone."""
    model, plain = (own_model(name, MeshShape(fsdp=2), rate=rate) for rate in (0.5, 0.0))
    batch = make_batch()

    def losses(model: CustomModel, **options: Any) -> list[float]:
        step = make_train_step(model, optax.sgd(0.0), lambda _: 1.0, clip_norm=1.0, **options)
        state = init_state(model, optax.sgd(0.0), 0)
        found = []
        for _ in range(3):
            state, metrics = step(state, batch)
            found.append(float(metrics.loss))
        return found

    dropped = losses(model)
    assert len(set(dropped)) == 3
    assert dropped == losses(model)
    assert not set(dropped) & {*losses(model, seed=1), *losses(model, gradient_accumulation=2)}
    without = losses(plain)
    assert len(set(without)) == 1
    weights = init_state(model, optax.sgd(0.0), 0).weights
    evaluated = make_evaluation_step(model)(weights, batch)
    # Float32 sums in another order.
    assert float(evaluated.losses.sum() / evaluated.tokens.sum()) == pytest.approx(without[0], rel=1e-6)


def test_dropouts_of_one_model_draw_apart() -> None:
    model, batch = own_model("Twice", MeshShape()), make_batch()
    weights, inputs = model.init(0), (batch.inputs, batch.positions, batch.segment_ids)
    differences, _ = model.hidden_in_training(weights, inputs, jax.random.key(1))
    assert 0.4 < float(jnp.mean(differences != 0)) < 0.6
    assert not jnp.any(model.hidden(weights, *inputs)[0])


def test_linen_and_functions_compute_what_the_nnx_module_does() -> None:
    """From the same weights, under the names that each has for them."""
    batch = make_batch()
    weights = init_state(own_model("Bigrams", MeshShape()), SGD, 0).weights
    embedding, dense = weights["embed"]["embedding"], weights["layers"]["0"]
    same = {
        "Bigrams": weights,
        "LinenBigrams": {"embed": {"embedding": embedding}, "output": dense},
        "functions": {"embed": embedding, "layers": {"0": dense["kernel"], "1": dense["bias"]}},
    }
    rows = {name: make_evaluation_step(own_model(name, MeshShape()))(same[name], batch).losses for name in same}
    for name in ("LinenBigrams", "functions"):
        np.testing.assert_allclose(rows[name], rows["Bigrams"], rtol=1e-6)


def test_module_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ConfigurationError, match="no module named 'nobody_has_it' is installed or on PYTHONPATH; submit"
    ):
        custom_shape(ModelConfig(custom="nobody_has_it.model:Decoder"), vocabulary=32, platform="cpu")


def test_logits_of_another_shape_are_refused() -> None:
    model = own_model("Narrow", MeshShape())
    step = make_train_step(model, SGD, lambda _: 1.0, clip_norm=1.0)
    with pytest.raises(ConfigurationError, match=r"gives \[16, 6, 127\] for tokens \[16, 6\]; it must give logits"):
        jax.eval_shape(step, abstract_state(model, SGD), make_batch())


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
