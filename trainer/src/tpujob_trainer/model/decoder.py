"""The decoder: embedding, layers, norm, output projection.

- Outside of the modules the model is a nested dictionary of arrays: what is trained, saved and divided over devices.
- The layers' weights are stacked, and one layer is gone through by `lax.scan`: compile time does not grow with depth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from tpujob_trainer.model.blocked_attention import blocked_attention
from tpujob_trainer.model.layers import INIT_STD, Attend, Layer, Past, RMSNorm, bound, weight
from tpujob_trainer.model.partitioning import FSDP, WHOLE, divided_dim, gather, spec_of
from tpujob_trainer.model.rotary import Angles, rotary_angles
from tpujob_trainer.model.shape import ModelShape

Weights = dict[str, Any]
"""Nested, by the names of modules; arrays at the leaves."""

LAYERS = "layers"

REMAT_POLICIES = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


class Decoder(nnx.Module):
    """All modules, with the layers' weights stacked along a first dimension."""

    def __init__(self, shape: ModelShape, *, rngs: nnx.Rngs) -> None:
        @nnx.split_rngs(splits=shape.layers)
        @nnx.vmap(in_axes=0, out_axes=0)
        def stacked(rngs: nnx.Rngs) -> Layer:
            return Layer(shape, rngs=rngs)

        self.embedding = weight(rngs, INIT_STD, vocab=shape.vocab_size, embed=shape.embed_dim)
        self.layers = stacked(rngs)
        self.norm = RMSNorm(shape)
        if not shape.tie_embeddings:
            self.output = weight(rngs, INIT_STD, embed=shape.embed_dim, vocab=shape.vocab_size)


@dataclasses.dataclass(frozen=True)
class Trace:
    """Values on the way through the model, in the type of computation."""

    embedding: jax.Array
    """`[B, S, D]`, what enters layer 0."""
    outputs: list[dict[str, jax.Array]]
    """Of each stretch, the kept outputs of its layers by name, `[layers, B, S, D]`."""
    norm: jax.Array
    """`[B, S, D]`, what leaves the final norm behind the last stretch."""


class Model:
    """A decoder without its weights: it makes them, says where they lie, and computes with them."""

    def __init__(self, shape: ModelShape, mesh: Mesh) -> None:
        self.shape = shape
        self.mesh = mesh
        decoder = nnx.eval_shape(lambda: Decoder(shape, rngs=nnx.Rngs(0)))
        self._layer, self._norm = nnx.split(decoder.layers), nnx.split(decoder.norm)
        parameters = nnx.state(decoder)
        self.abstract_weights: Weights = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), nnx.to_pure_dict(parameters)
        )
        self.divided: Weights = nnx.traversals.unflatten_mapping(
            {path: self._divided_dim(path, parameter) for path, parameter in nnx.to_flat_state(parameters)}
        )
        """The same nesting as the weights: which dimension of each is divided over `fsdp`."""
        self.specs: Weights = jax.tree.map(spec_of, self.divided)
        self.shardings: Weights = jax.tree.map(lambda dim: NamedSharding(mesh, spec_of(dim)), self.divided)

    def init(self, seed: int) -> Weights:
        """Fresh float32 weights. Jit it with `shardings` as output, and no host ever holds them whole."""
        weights: Weights = nnx.to_pure_dict(nnx.state(Decoder(self.shape, rngs=nnx.Rngs(seed))))
        return weights

    def hidden(
        self, weights: Weights, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """The last hidden states `[B, S, D]`, normalised, and the output projection `[D, V]`; inside `shard_map` only.

        Logits are their product. Both are in the type of computation.

        Args:
            weights: the parts of this device.
            tokens: int32 `[B, S]`, the rows of this device.
            positions: int32 `[B, S]`, from 0 in each document.
            segment_ids: int32 `[B, S]`, one number for each document of a row.
        """
        outer = gather(_without_layers(weights), _without_layers(self.divided), self._dtype)
        angles, attend = self._angles(positions), self._attend(segment_ids)
        dims = _within_layer(self.divided[LAYERS])

        def layer(x: jax.Array, each: tuple[Weights, jax.Array]) -> tuple[jax.Array, None]:
            parts, is_global = each
            module = bound(self._layer, gather(parts, dims, self._dtype))
            return module(x, angles(is_global), attend, is_global)[0], None

        if self.shape.remat != "none":
            # Inside of a scan XLA cannot merge the two computations anyway.
            layer = jax.checkpoint(layer, policy=REMAT_POLICIES[self.shape.remat], prevent_cse=False)
        x, _ = jax.lax.scan(layer, self._embedded(outer, tokens), (weights[LAYERS], self._global_layers))
        return bound(self._norm, outer["norm"])(x), self._output(outer)

    def trace(
        self,
        weights: Weights,
        tokens: jax.Array,
        positions: jax.Array,
        segment_ids: jax.Array,
        stretches: Sequence[tuple[int, int, Sequence[str]]],
    ) -> Trace:
        """What leaves the layers on the way through the model; inside `shard_map` only.

        Args:
            weights: the parts of this device.
            tokens: int32 `[B, S]`, the rows of this device.
            positions: int32 `[B, S]`, from 0 in each document.
            segment_ids: int32 `[B, S]`, one number for each document of a row.
            stretches: consecutive layers (first, end) from 0 on, and which outputs of them are kept (`Layer.outputs`).
                Layers behind the last stretch are not computed.
        """
        outer = gather(_without_layers(weights), _without_layers(self.divided), self._dtype)
        angles, attend = self._angles(positions), self._attend(segment_ids)
        dims = _within_layer(self.divided[LAYERS])

        def through(kept: Sequence[str]) -> Callable[..., tuple[jax.Array, dict[str, jax.Array]]]:
            def layer(x: jax.Array, each: tuple[Weights, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
                parts, is_global = each
                module = bound(self._layer, gather(parts, dims, self._dtype))
                left = module.outputs(x, angles(is_global), attend, is_global)
                return left["residual"], {name: left[name] for name in kept}

            return layer

        x = embedded = self._embedded(outer, tokens)
        outputs = []
        for first, end, kept in stretches:
            layers = jax.tree.map(lambda leaf, a=first, b=end: leaf[a:b], (weights[LAYERS], self._global_layers))
            x, left = jax.lax.scan(through(kept), x, layers)
            outputs.append(left)
        return Trace(embedded, outputs, bound(self._norm, outer["norm"])(x))

    def next(
        self, weights: Weights, tokens: jax.Array, at: jax.Array, past: Past, *, are_whole: bool
    ) -> tuple[jax.Array, Past]:
        """The logits `[B, V]` after one more token, float32, and the past with it; inside `shard_map` only.

        Args:
            weights: the parts of this device; or, if `are_whole`, what `whole` made of them.
            tokens: int32 `[B]`, one for each row.
            at: int32, how many came before.
            past: what there is to see of these, of all layers.
            are_whole: whether nothing is to be gathered.
        """
        divided = jax.tree.map(lambda _: WHOLE, self.divided) if are_whole else self.divided
        outer = gather(_without_layers(weights), _without_layers(divided), self._dtype)
        positions = jnp.broadcast_to(at, (tokens.shape[0], 1))
        angles = self._angles(positions)
        dims = _within_layer(divided[LAYERS])

        def layer(x: jax.Array, each: tuple[Weights, Past, jax.Array]) -> tuple[jax.Array, Past]:
            parts, before, is_global = each
            module = bound(self._layer, gather(parts, dims, self._dtype))
            after: tuple[jax.Array, Past] = module.next(x, angles(is_global), before, at, is_global)
            return after

        x = self._embedded(outer, tokens[:, None])
        x, past = jax.lax.scan(layer, x, (weights[LAYERS], past, self._global_layers))
        logits = (bound(self._norm, outer["norm"])(x)[:, 0] @ self._output(outer)).astype(jnp.float32)
        return soft_capped(logits, self.shape.logit_softcap), past

    def no_past(self, rows: int, length: int) -> Past:
        """Before the first of so many positions."""
        shape = (self.shape.layers, rows, length, self.shape.kv_heads, self.shape.head_dim)
        return Past(jnp.zeros(shape, self._dtype), jnp.zeros(shape, self._dtype))

    def whole(self, weights: Weights) -> Weights:
        """All of them gathered, in the type of computation; inside `shard_map` only."""
        return gather(weights, self.divided, self._dtype)

    @property
    def whole_bytes(self) -> int:
        """The memory that takes on each device."""
        return self.shape.num_parameters * self._dtype.itemsize

    def _angles(self, positions: jax.Array) -> Callable[[jax.Array], Angles]:
        """Angles of a layer that is global, or is not."""
        shape = self.shape
        everywhere = rotary_angles(
            positions, head_dim=shape.head_dim, theta=shape.rope_theta, scaling=shape.rope_scaling
        )
        if shape.local_rope_theta is None:
            return lambda is_global: everywhere
        local = rotary_angles(positions, head_dim=shape.head_dim, theta=shape.local_rope_theta)
        return lambda is_global: jax.tree.map(lambda a, b: jnp.where(is_global, a, b), everywhere, local)

    def _attend(self, segment_ids: jax.Array) -> Attend:
        shape = self.shape

        def with_window(window: int | None) -> Callable[..., jax.Array]:
            return lambda query, key, value: blocked_attention(
                query,
                key,
                value,
                segment_ids,
                segment_ids,
                scale=shape.score_scale,
                window=window,
                softcap=shape.attention_softcap,
            )

        def attend(query: jax.Array, key: jax.Array, value: jax.Array, is_global: jax.Array | bool) -> jax.Array:
            if len(set(shape.global_layers)) == 1:
                return with_window(shape.window)(query, key, value)
            return jax.lax.cond(is_global, with_window(None), with_window(shape.window), query, key, value)

        return attend

    def _embedded(self, outer: Weights, tokens: jax.Array) -> jax.Array:
        x: jax.Array = outer["embedding"][tokens]
        return x * jnp.asarray(self.shape.embed_dim**0.5, x.dtype) if self.shape.scaled_embedding else x

    @property
    def _global_layers(self) -> jax.Array:
        return jnp.array(self.shape.global_layers)

    @property
    def _dtype(self) -> np.dtype[Any]:
        return jnp.dtype(self.shape.compute_dtype)

    def _output(self, outer: Weights) -> jax.Array:
        output: jax.Array = outer["embedding"].T if self.shape.tie_embeddings else outer["output"]
        return output

    def _divided_dim(self, path: tuple[Any, ...], parameter: nnx.Param) -> int:
        axes = parameter.get_metadata()["axes"]
        if path[0] == LAYERS:
            axes = (LAYERS, *axes)
        return divided_dim(axes, parameter.shape, self.mesh.shape[FSDP])


def soft_capped(logits: jax.Array, cap: float | None) -> jax.Array:
    """Cap · tanh(logits / cap), as Gemma 2 has it."""
    return logits if cap is None else cap * jnp.tanh(logits / cap)


def _within_layer(divided: Weights) -> Weights:
    """There, dimensions count without the stack."""
    return jax.tree.map(lambda dim: max(dim - 1, WHOLE), divided)


def _without_layers(tree: Weights) -> Weights:
    return {name: value for name, value in tree.items() if name != LAYERS}
