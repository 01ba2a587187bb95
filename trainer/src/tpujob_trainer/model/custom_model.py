"""A user-defined model that a configuration names, trained like the built-in models.

It is created with `vocab_size`, the configuration's arguments and, if it accepts them, `rngs`. For tokens, positions
and segment ids, int32 `[B, S]`, it returns the logits `[B, S, V]`; or the hidden states `[B, S, D]` and the output
matrix `[D, V]`, in which case no device ever has all logits. Names of its weights' dimensions determine how they are
divided (`partitioning`); without names, their sizes do. `custom` has the forms that it may have.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from tpujob_contract.batch_rows import divided_dimension
from tpujob_trainer.model.axes import WEIGHT_AXES
from tpujob_trainer.model.config import ModelConfig, rounded_vocabulary
from tpujob_trainer.model.custom.load import load_module
from tpujob_trainer.model.custom.module import FIELD, Inputs, Path
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.lora import LoraModel
from tpujob_trainer.model.lora_config import LoraConfig
from tpujob_trainer.model.partitioning import POSITIONS
from tpujob_trainer.model.quantized import require_faster
from tpujob_trainer.model.shape import CustomShape, ModelShape
from tpujob_trainer.values.errors import ConfigurationError


def custom_shape(config: ModelConfig, *, vocabulary: int, platform: str) -> CustomShape:
    """The shape of the module that `config.custom` names.

    Args:
        config: the `model` block.
        vocabulary: number of ids that the tokenizer produces.
        platform: JAX platform of the devices: cpu, gpu or tpu.

    Raises:
        ConfigurationError: there is no such module, it cannot be created, or a weight names its dimensions wrongly.
        ValueError: vocabSize is too small.
    """
    assert config.custom is not None
    vocab_size = rounded_vocabulary(config.vocab_size, None, vocabulary)
    arguments = dict(config.arguments or {})
    parameters = load_module(config.custom, arguments, vocab_size).parameters
    sizes: dict[str, int] = {}
    for each in parameters.values():
        for axis, size in zip(each.axes or (), each.shape, strict=each.axes is not None):
            if sizes.setdefault(axis, size) != size and axis in ("embed", "heads", "kv_heads", "mlp", "experts"):
                sizes[axis] = math.gcd(sizes[axis], size)
    unnamed = {path: each.shape for path, each in parameters.items() if each.axes is None}
    if unnamed:
        sizes.setdefault("embed", max(max(unnamed.values(), key=math.prod)))
    return CustomShape(
        layers=sizes.get("layers", 1),
        embed_dim=sizes.get("embed", 1),
        heads=sizes.get("heads", 1),
        kv_heads=sizes.get("kv_heads", sizes.get("heads", 1)),
        head_dim=2,
        mlp_dim=sizes.get("mlp", 1),
        experts=sizes.get("experts"),
        experts_per_token=1,
        vocab_size=vocab_size,
        family="custom",
        compute_dtype=config.compute_dtype or ("float32" if platform == "cpu" else "bfloat16"),
        custom=config.custom,
        arguments=arguments,
        weights=sum(math.prod(each.shape) for each in parameters.values()),
        unnamed=tuple(".".join(path) for path in unnamed),
    )


class CustomModel(Model):
    """The module that a configuration names, without its weights."""

    def __init__(self, shape: CustomShape, mesh: Mesh) -> None:
        self.shape: CustomShape = shape
        self.mesh = mesh
        self._module = load_module(shape.custom, shape.arguments, shape.vocab_size)
        parameters = self._module.parameters
        self.has_dropout = self._module.has_dropout
        self.abstract_weights = _nested(
            {path: jax.ShapeDtypeStruct(each.shape, jnp.float32) for path, each in parameters.items()}
        )
        parts = math.prod(mesh.shape[axis] for axis in WEIGHT_AXES)
        self.axes = _nested({path: each.axes or _by_size(each.shape, parts) for path, each in parameters.items()})
        self._take_axes()

    def init(self, seed: int) -> Weights:
        return _nested({path: value.astype(jnp.float32) for path, value in self._module.init(seed).items()})

    def hidden(
        self, weights: Weights, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array
    ) -> tuple[jax.Array, jax.Array | None]:
        """The module's output: hidden states and the output matrix, or logits and None."""
        return self.hidden_in_training(weights, (tokens, positions, segment_ids), None)

    def hidden_in_training(
        self, weights: Weights, inputs: Inputs, dropout_key: jax.Array | None
    ) -> tuple[jax.Array, jax.Array | None]:
        tokens = inputs[0]
        given = self._apply(weights, inputs, dropout_key)
        first, output = given if isinstance(given, tuple) else (given, None)
        expected = (*tokens.shape, self.shape.vocab_size if output is None else output.shape[0])
        if first.shape != expected:
            raise ConfigurationError(
                f"{FIELD}: {self.shape.custom} gives {list(first.shape)} for tokens {list(tokens.shape)}; it must give "
                f"logits {list(expected)}, or hidden states and the output matrix [width, {self.shape.vocab_size}]"
            )
        return jax.lax.with_sharding_constraint(first, NamedSharding(self.mesh, POSITIONS)), output

    def trace(self, *_: Any) -> Any:
        raise ConfigurationError(f"{FIELD}: extraction knows the layers of presets and of model.from only")

    def prefill(self, weights: Weights, tokens: jax.Array, length: int) -> tuple[jax.Array, Any]:
        """The float32 logits `[B, V]` after the tokens, and the tokens padded to `length`.

        Each later token is a forward pass of all of them: modules have no interface for a key-value cache.
        """
        room = jnp.pad(tokens, ((0, 0), (0, length - tokens.shape[1])))
        return self._logits_at(weights, room, jnp.asarray(tokens.shape[1] - 1)), room

    def next(self, weights: Weights, tokens: jax.Array, at: jax.Array, past: Any) -> tuple[jax.Array, Any]:
        """The float32 logits `[B, V]` after one more token, and the tokens with it."""
        past = jax.lax.dynamic_update_slice_in_dim(past, tokens[:, None], at, axis=1)
        return self._logits_at(weights, past, at), past

    def _cast(self, weights: Weights) -> Weights:
        """Casts vectors, too: a float32 scale would make all activations float32 in most modules."""
        return jax.tree.map(lambda leaf: leaf.astype(self._dtype), weights)

    def _logits_at(self, weights: Weights, tokens: jax.Array, at: jax.Array) -> jax.Array:
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
        given = self._apply(weights, (tokens, positions, jnp.zeros_like(tokens)), None)
        seen, output = given if isinstance(given, tuple) else (given, None)
        last = jax.lax.dynamic_index_in_dim(seen, at, axis=1, keepdims=False)
        if output is None:
            return last.astype(jnp.float32)
        return jnp.matmul(last, output.astype(last.dtype), preferred_element_type=jnp.float32)

    def _apply(self, weights: Weights, inputs: Inputs, dropout_key: jax.Array | None) -> Any:
        return self._module.apply(nnx.traversals.flatten_mapping(self._cast(weights)), inputs, dropout_key)


def _by_size(shape: tuple[int, ...], parts: int) -> tuple[str, ...]:
    """Names for the dimensions of a weight without: that which is divided into `parts` is embed."""
    divided = divided_dimension(shape, parts)
    return tuple("embed" if at == divided else "none" for at in range(len(shape)))


def _nested(flat: dict[Path, Any]) -> Weights:
    """The values, nested by the names of modules as in a checkpoint."""
    nested: Weights = nnx.traversals.unflatten_mapping(flat)
    return nested


def make_model(shape: ModelShape, mesh: Mesh, lora: LoraConfig | None = None) -> Model:
    """The model of a shape: built-in, with or without adapters, or user-defined.

    Raises:
        ConfigurationError: its products use a type that these devices do not multiply faster.
    """
    require_faster(shape.quantization, mesh.devices.flat[0].device_kind)
    if isinstance(shape, CustomShape):
        return CustomModel(shape, mesh)
    return LoraModel(shape, mesh, lora) if lora else Model(shape, mesh)
