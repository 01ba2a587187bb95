"""The decoder: embedding, layers, norm, output projection.

- The layers are one module whose weights are stacked, gone through by `lax.scan`: compile time does not grow
  with depth.
- Outside of a step the model is a nested dictionary of weights; the modules' structure is kept apart, as a constant.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from tpujob_trainer.model.layers import INIT_STD, Layer, RMSNorm, attention_mask, rotary_angles, used, weight
from tpujob_trainer.model.partitioning import FSDP, over_rows, weight_spec
from tpujob_trainer.model.shape import ModelShape

Weights = dict[str, Any]
"""Nested, by the names of modules; arrays at the leaves."""

REMAT_POLICIES = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


class Decoder(nnx.Module):
    """A Llama-like decoder. Call it on weights through `Model`."""

    def __init__(self, shape: ModelShape, *, rngs: nnx.Rngs) -> None:
        self.shape = shape
        self.embedding = weight(rngs, INIT_STD, vocab=shape.vocab_size, embed=shape.embed_dim)
        self.layers = _stacked_layers(shape, rngs)
        self.norm = RMSNorm(shape)
        if not shape.tie_embeddings:
            self.output = weight(rngs, INIT_STD, embed=shape.embed_dim, vocab=shape.vocab_size)

    def __call__(self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array) -> jax.Array:
        """The last hidden states `[B, S, D]`, normalised, in the type of computation.

        Args:
            tokens: int32 `[B, S]`.
            positions: int32 `[B, S]`, from 0 in each document.
            segment_ids: int32 `[B, S]`, one number for each document of a row.
        """
        dtype = jnp.dtype(self.shape.compute_dtype)
        x = over_rows(used(self.embedding, jnp.empty((), dtype))[tokens])
        angles = rotary_angles(positions, head_dim=self.shape.head_dim, theta=self.shape.rope_theta)
        mask = attention_mask(segment_ids)
        structure, stacked = nnx.split(self.layers)

        def step(x: jax.Array, one: nnx.State) -> tuple[jax.Array, None]:
            return nnx.merge(structure, one)(x, angles, mask), None

        if self.shape.remat != "none":
            # Inside of a scan XLA cannot merge the two computations anyway.
            step = jax.checkpoint(step, policy=REMAT_POLICIES[self.shape.remat], prevent_cse=False)
        x, _ = jax.lax.scan(step, x, stacked)
        return self.norm(x)

    def output_weights(self) -> jax.Array:
        """`[D, V]` in the type of computation: logits are hidden @ this."""
        like = jnp.empty((), jnp.dtype(self.shape.compute_dtype))
        if self.shape.tie_embeddings:
            return used(self.embedding, like).T
        return used(self.output, like)


class Model:
    """A decoder's structure without its weights: it makes them, says where they lie, and computes with them."""

    def __init__(self, shape: ModelShape) -> None:
        self.shape = shape
        abstract = nnx.eval_shape(lambda: Decoder(shape, rngs=nnx.Rngs(0)))
        self._structure, self._abstract = nnx.split(abstract)
        self.abstract_weights: Weights = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), nnx.to_pure_dict(self._abstract)
        )

    def init(self, seed: int) -> Weights:
        """Fresh weights. Jit it with `shardings` as output, and no host ever holds them whole."""
        weights: Weights = nnx.to_pure_dict(nnx.state(Decoder(self.shape, rngs=nnx.Rngs(seed))))
        return weights

    def bind(self, weights: Weights) -> Decoder:
        """The decoder with these weights; inside of a jitted function this costs nothing at run time."""
        state = jax.tree.map(lambda leaf: leaf, self._abstract)
        nnx.replace_by_pure_dict(state, weights)
        decoder: Decoder = nnx.merge(self._structure, state)
        return decoder

    def shardings(self, mesh: Mesh) -> Weights:
        """Where each weight lies on the mesh; the same nesting as the weights."""
        fsdp = mesh.shape[FSDP]

        def of(path: tuple[Any, ...], parameter: nnx.Param) -> NamedSharding:
            axes = parameter.get_metadata()["axes"]
            if path[0] == "layers":
                axes = ("layers", *axes)
            return NamedSharding(mesh, weight_spec(axes, parameter.shape, fsdp))

        flat = {path: of(path, parameter) for path, parameter in nnx.to_flat_state(self._abstract)}
        shardings: Weights = nnx.traversals.unflatten_mapping(flat)
        return shardings


def _stacked_layers(shape: ModelShape, rngs: nnx.Rngs) -> Layer:
    @nnx.split_rngs(splits=shape.layers)
    @nnx.vmap(in_axes=0, out_axes=0)
    def make(rngs: nnx.Rngs) -> Layer:
        return Layer(shape, rngs=rngs)

    layers: Layer = make(rngs)
    return layers
