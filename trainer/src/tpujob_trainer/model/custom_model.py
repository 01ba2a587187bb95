"""A model of the user's own: an NNX module that a configuration names, trained as ours are.

The module is made with `vocab_size`, `rngs` and the configuration's arguments. Called with tokens, positions and
segment ids, int32 `[B, S]`, it gives the logits `[B, S, V]`; or the hidden states `[B, S, D]` and the output matrix
`[D, V]`, and no device ever has all logits. Its weights name their dimensions, `axes=("embed", "mlp")` or as
`nnx.with_partitioning` does it, and are divided by these names (`partitioning`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from tpujob_trainer.errors import ConfigurationError, TrainerError, brief
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.lora import LoraModel
from tpujob_trainer.model.lora_config import LoraConfig
from tpujob_trainer.model.partitioning import POSITIONS
from tpujob_trainer.model.quantized import require_faster
from tpujob_trainer.model.shape import CustomShape, ModelConfig, ModelShape, rounded_vocabulary
from tpujob_trainer.parsing.references import load_reference

FIELD = "spec.trainer.model.custom"


def custom_shape(config: ModelConfig, *, vocabulary: int, platform: str) -> CustomShape:
    """The shape of the module that `config.custom` names.

    Args:
        config: the `model` block.
        vocabulary: number of ids that the tokenizer produces.
        platform: jax's word for the devices: cpu, gpu, tpu.

    Raises:
        ConfigurationError: there is no such module, it cannot be made, or a weight does not name its dimensions.
        ValueError: vocabSize is too small.
    """
    assert config.custom is not None
    vocab_size = rounded_vocabulary(config.vocab_size, None, vocabulary)
    arguments = dict(config.arguments or {})
    found = list(_parameters(_abstract(config.custom, arguments, vocab_size), config.custom))
    sizes: dict[str, int] = {}
    for path, parameter in found:
        for axis, size in zip(_axes(path, parameter, config.custom), parameter.shape, strict=True):
            if sizes.setdefault(axis, size) != size and axis in ("embed", "heads", "kv_heads", "mlp", "experts"):
                sizes[axis] = math.gcd(sizes[axis], size)
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
        weights=sum(math.prod(parameter.shape) for _, parameter in found),
    )


class CustomModel(Model):
    """The module that a configuration names, without its weights."""

    def __init__(self, shape: CustomShape, mesh: Mesh) -> None:
        self.shape: CustomShape = shape
        self.mesh = mesh
        module = _abstract(shape.custom, shape.arguments, shape.vocab_size)
        self._structure, state = nnx.split(module)
        self._variables = dict(nnx.to_flat_state(state))
        found = dict(_parameters(module, shape.custom))
        self.abstract_weights = _nested(
            {path: jax.ShapeDtypeStruct(each.shape, jnp.float32) for path, each in found.items()}
        )
        self.axes = _nested({path: _axes(path, each, shape.custom) for path, each in found.items()})
        self._take_axes()

    def init(self, seed: int) -> Weights:
        module = _made(self.shape.custom, self.shape.arguments, self.shape.vocab_size, seed)
        return _nested({path: each[...].astype(jnp.float32) for path, each in _parameters(module, self.shape.custom)})

    def hidden(
        self, weights: Weights, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array
    ) -> tuple[jax.Array, jax.Array | None]:
        """What the module gives: hidden states and the output matrix, or logits and None."""
        given = self._bound(weights)(tokens, positions, segment_ids)
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
        """The logits `[B, V]` after the tokens, float32, and the tokens with room for all `length`.

        Each later token is a pass of all of them: what a module could keep of earlier ones is its own affair.
        """
        room = jnp.pad(tokens, ((0, 0), (0, length - tokens.shape[1])))
        return self._logits_at(weights, room, jnp.asarray(tokens.shape[1] - 1)), room

    def next(self, weights: Weights, tokens: jax.Array, at: jax.Array, past: Any) -> tuple[jax.Array, Any]:
        """The logits `[B, V]` after one more token, float32, and the tokens with it."""
        past = jax.lax.dynamic_update_slice_in_dim(past, tokens[:, None], at, axis=1)
        return self._logits_at(weights, past, at), past

    def _cast(self, weights: Weights) -> Weights:
        """Vectors, too: a float32 scale would make all activations float32 in most modules."""
        return jax.tree.map(lambda leaf: leaf.astype(self._dtype), weights)

    def _logits_at(self, weights: Weights, tokens: jax.Array, at: jax.Array) -> jax.Array:
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
        given = self._bound(weights)(tokens, positions, jnp.zeros_like(tokens))
        seen, output = given if isinstance(given, tuple) else (given, None)
        last = jax.lax.dynamic_index_in_dim(seen, at, axis=1, keepdims=False)
        if output is None:
            return last.astype(jnp.float32)
        return jnp.matmul(last, output.astype(last.dtype), preferred_element_type=jnp.float32)

    def _bound(self, weights: Weights) -> Any:
        flat = dict(nnx.traversals.flatten_mapping(self._cast(weights)))
        filled = {path: each.replace(flat[tuple(map(str, path))]) for path, each in self._variables.items()}
        return nnx.merge(self._structure, nnx.from_flat_state(filled))


def _abstract(reference: str, arguments: dict[str, Any], vocab_size: int) -> Any:
    return nnx.eval_shape(lambda: _made(reference, arguments, vocab_size, 0))


def _made(reference: str, arguments: dict[str, Any], vocab_size: int, seed: int) -> nnx.Module:
    make = load_reference(reference, FIELD)
    try:
        # Weights are placed by their sharding after they were made, not while.
        with nnx.use_eager_sharding(False):
            module = make(**arguments, vocab_size=vocab_size, rngs=nnx.Rngs(seed))
    except TrainerError:
        raise
    except Exception as error:
        given = ", ".join([*arguments, "vocab_size", "rngs"])
        raise ConfigurationError(f"{FIELD}: {reference}({given}) failed: {brief(error)}") from error
    if not isinstance(module, nnx.Module):
        raise ConfigurationError(f"{FIELD}: {reference} makes a {type(module).__name__}; it must make an nnx.Module")
    return module


def _parameters(module: Any, reference: str) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for path, variable in nnx.to_flat_state(nnx.state(module)):
        if not isinstance(variable, nnx.Param):
            raise ConfigurationError(
                f"{FIELD}: {_spelled(path)} of {reference} is a {type(variable).__name__}; everything that a module "
                "keeps must be an nnx.Param, for nothing else is trained or saved"
            )
        yield path, variable


def _axes(path: tuple[Any, ...], parameter: Any, reference: str) -> tuple[str, ...]:
    metadata = parameter.get_metadata()
    axes = metadata.get("axes", metadata.get("out_sharding"))
    dims = len(parameter.shape)
    if axes is None and dims <= 1:
        return ("vector",) * dims
    example = ", ".join(['"embed"', '"mlp"', '"heads"', '"layers"'][:dims])
    if axes is None or len(axes) != dims or axes.count("embed") > 1:
        said = "does not name its dimensions" if axes is None else f"names its dimensions {tuple(axes)}"
        raise ConfigurationError(
            f"{FIELD}: {_spelled(path)} of {reference} {said}, and has {list(parameter.shape)}; write "
            f"nnx.Param(value, axes=({example})), embed once at most"
        )
    return tuple(axis or "none" for axis in axes)


def _spelled(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def _nested(flat: dict[tuple[Any, ...], Any]) -> Weights:
    """By the names of modules; those in a list by their numbers, as text: that is how a checkpoint spells them."""
    nested: Weights = nnx.traversals.unflatten_mapping({tuple(map(str, path)): leaf for path, leaf in flat.items()})
    return nested


def make_model(shape: ModelShape, mesh: Mesh, lora: LoraConfig | None = None) -> Model:
    """The model of a shape: ours, with or without adapters, or the user's own.

    Raises:
        ConfigurationError: its products are of a type that these devices do not multiply faster.
    """
    require_faster(shape.quantization, mesh.devices.flat[0].device_kind)
    if isinstance(shape, CustomShape):
        return CustomModel(shape, mesh)
    return LoraModel(shape, mesh, lora) if lora else Model(shape, mesh)
