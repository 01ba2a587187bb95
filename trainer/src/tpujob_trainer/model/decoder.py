"""The decoder: embedding, layers, norm, output projection.

- Outside the modules, the weights are a nested dictionary of arrays, which is trained, saved and divided over devices.
- The layers' weights are stacked, and `lax.scan` runs one layer at a time: compile time does not grow with depth.
  If the first layers of a mixture have no experts, they are a separate stack (`ModelShape.stacks`).
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_trainer.model import quantized
from tpujob_trainer.model.attention.attend import Attend, make_attend
from tpujob_trainer.model.attention.blocked import blocked_attention
from tpujob_trainer.model.attention.rotary import Angles, rotary_angles
from tpujob_trainer.model.embedding import look_up
from tpujob_trainer.model.experts import RouterLosses, mix_over, router_losses
from tpujob_trainer.model.layers import Layer, Past, bound
from tpujob_trainer.model.mesh.ring_product import NARROW, narrow_over, widen_over
from tpujob_trainer.model.mesh.rings import narrow_rings, rings_of
from tpujob_trainer.model.norm import INIT_STD, RMSNorm, weight
from tpujob_trainer.model.partitioning import POSITIONS, REPLICATED, gather, gathered_spec, lying, weight_spec
from tpujob_trainer.model.quantized import PLAIN, Adapters, Products
from tpujob_trainer.model.remat import policy
from tpujob_trainer.model.shape import LAYERS, STACKS, ModelShape, Stack

Weights = dict[str, Any]
"""Nested, by the names of modules; arrays at the leaves."""
Pasts = tuple[Past, ...]
"""The key-value caches of the layers of each stack."""

GATHERED_AT_ONCE_BYTES = 2**28
"""Off TPU, each exchange has a fixed latency: weights of at most this size are gathered for all layers at once."""


class Decoder(nnx.Module):
    """All modules, with the layers' weights stacked along a first dimension."""

    def __init__(self, shape: ModelShape, *, rngs: nnx.Rngs) -> None:
        self.embedding = weight(rngs, INIT_STD, vocab=shape.vocab_size, embed=shape.embed_dim)
        for stack in shape.stacks:
            setattr(self, stack.name, _stacked(stack, rngs))
        self.norm = RMSNorm(shape)
        if not shape.tie_embeddings:
            self.output = weight(rngs, INIT_STD, embed=shape.embed_dim, vocab=shape.vocab_size)


def _stacked(stack: Stack, rngs: nnx.Rngs) -> Layer:
    @nnx.split_rngs(splits=stack.end - stack.first)
    @nnx.vmap(in_axes=0, out_axes=0)
    def of_layer(rngs: nnx.Rngs) -> Layer:
        return Layer(stack.shape, rngs=rngs)

    made: Layer = of_layer(rngs)
    return made


class LayerKind(NamedTuple):
    """Properties in which layers differ: arrays of bool over all layers, or the values of one layer."""

    is_global: jax.Array
    """The layer attends to all earlier positions."""
    is_turned: jax.Array
    """Its queries and keys have rotary positions."""


@dataclasses.dataclass(frozen=True)
class Trace:
    """Intermediate values of the model, in the compute dtype."""

    embedding: jax.Array
    """`[B, S, D]`, the input of layer 0."""
    outputs: list[dict[str, jax.Array]]
    """For each stretch, the kept outputs of its layers by name, `[layers, B, S, D]`."""
    norm: jax.Array
    """`[B, S, D]`, the final norm of the stream after the last stretch."""


class Model:
    """A decoder without its weights: creates them, has their shardings, and computes with them.

    Everything is written for whole arrays; the compiler partitions it by their shardings.
    """

    has_dropout = False
    """Whether training uses random numbers, from a key for each step."""

    def __init__(self, shape: ModelShape, mesh: Mesh) -> None:
        self.shape = shape
        self.mesh = mesh
        decoder = nnx.eval_shape(lambda: Decoder(shape, rngs=nnx.Rngs(0)))
        self._layers = {stack.name: nnx.split(getattr(decoder, stack.name)) for stack in shape.stacks}
        self._norm = nnx.split(decoder.norm)
        parameters = nnx.state(decoder)
        self.abstract_weights: Weights = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), nnx.to_pure_dict(parameters)
        )
        axes = {path: _axes(path, parameter) for path, parameter in nnx.to_flat_state(parameters)}
        self.axes: Weights = nnx.traversals.unflatten_mapping(axes)
        """Nested as the weights: the names of each weight's dimensions."""
        self._take_axes()

    def _take_axes(self) -> None:
        self._rings = rings_of(self.mesh, self.shape)
        self.specs: Weights = self._of_axes(lambda axes: weight_spec(axes, self._rings))
        self.gathered_specs: Weights = self._of_axes(lambda axes: gathered_spec(axes, self._rings))
        self.shardings: Weights = jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), self.specs)

    def init(self, seed: int) -> Weights:
        """Fresh float32 weights. If it is jitted with `shardings` as output, no host ever holds them whole."""
        weights: Weights = nnx.to_pure_dict(nnx.state(Decoder(self.shape, rngs=nnx.Rngs(seed))))
        return weights

    def hidden(
        self, weights: Weights, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array
    ) -> tuple[jax.Array, jax.Array | None]:
        """The last hidden states `[B, S, D]`, normalised, and the output matrix `[D, V]`.

        Logits are their product, soft-capped if the shape has a cap. The states are in the compute dtype; the matrix
        is as in the weights.

        Args:
            weights: of the model.
            tokens: int32 `[B, S]`.
            positions: int32 `[B, S]`, from 0 in each document.
            segment_ids: int32 `[B, S]`, one number for each document of a row.
        """
        hidden, output, _ = self._forward(weights, tokens, positions, segment_ids, with_router=False)
        return hidden, output

    def hidden_in_training(
        self, weights: Weights, inputs: tuple[jax.Array, jax.Array, jax.Array], dropout_key: jax.Array | None
    ) -> tuple[jax.Array, jax.Array | None]:
        """As `hidden`, with dropout if the model has it; the key is None if nothing is to be dropped."""
        return self.hidden(weights, *inputs)

    def hidden_and_router(
        self, weights: Weights, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array
    ) -> tuple[jax.Array, jax.Array | None, RouterLosses]:
        """As `hidden`, and the losses of a mixture's routers; segment 0 is padding and does not count."""
        hidden, output, losses = self._forward(weights, tokens, positions, segment_ids, with_router=True)
        assert losses is not None
        return hidden, output, losses

    def _forward(
        self,
        weights: Weights,
        tokens: jax.Array,
        positions: jax.Array,
        segment_ids: jax.Array,
        *,
        with_router: bool,
    ) -> tuple[jax.Array, jax.Array, RouterLosses | None]:
        angles, attend = self._angles(positions), make_attend(self.shape, self.mesh, segment_ids)
        dispatch = mix_over(self.mesh)
        recomputes = self.shape.remat == "full" and "mlp" not in self.shape.remat_save
        products = PLAIN
        if self._gathers_narrow:
            narrow = narrow_over(self.mesh, makes_rings=narrow_rings(self.mesh, self.shape))
            products = Products(narrow, narrow)
        elif self._rings.mlp and recomputes:
            products = Products(widen=widen_over(self.mesh))
        counts = segment_ids.ravel() > 0

        def through(stack: Stack, gather_layer: Callable[[Weights], Weights]) -> Callable[..., Any]:
            def layer(x: jax.Array, each: tuple[Weights, LayerKind, Adapters]) -> tuple[jax.Array, RouterLosses | None]:
                parts, kind, adapters = each
                module = bound(self._layers[stack.name], gather_layer(parts))
                x, _, routing = module(x, angles(kind), attend, kind.is_global, dispatch, adapters, products)
                is_told = with_router and routing is not None
                return self._constrained(x), router_losses(routing, counts) if is_told else None

            if self.shape.remat == "none" and self._gathers_at_once:
                return layer
            # Inside a scan, XLA cannot merge the computation with its recomputation anyway.
            return jax.checkpoint(layer, policy=policy(stack.shape), prevent_cse=False)

        x = self._constrained(self._scaled(look_up(weights["embedding"], tokens, self.mesh, self._dtype)))
        losses = None  # of the last stack: the stack before it has no router
        for stack in self.shape.stacks:
            layers, gather_layer = self._layer_gathering(weights, stack, leave_narrow=self._gathers_narrow)
            adapters = jax.tree.map(lambda leaf, at=stack: leaf[at.first : at.end], self._adapters(weights))
            each = (layers, self._kinds_of(stack), adapters)
            x, losses = jax.lax.scan(through(stack, gather_layer), x, each)
        return self._normed(weights, x), self._output(weights), jax.tree.map(jnp.mean, losses)

    def trace(
        self,
        weights: Weights,
        tokens: jax.Array,
        positions: jax.Array,
        segment_ids: jax.Array,
        stretches: Sequence[tuple[int, int, Sequence[str]]],
    ) -> Trace:
        """The outputs of layers in a forward pass.

        Args:
            weights: of the model.
            tokens: int32 `[B, S]`.
            positions: int32 `[B, S]`, from 0 in each document.
            segment_ids: int32 `[B, S]`, one number for each document of a row.
            stretches: consecutive ranges of layers (first, end) from 0 on, and which of their outputs are kept
                (`Layer.outputs`). Layers after the last stretch are not computed.
        """
        angles, attend = self._angles(positions), make_attend(self.shape, self.mesh, segment_ids)
        gathering = {stack.name: self._layer_gathering(weights, stack) for stack in self.shape.stacks}

        def through(stack: Stack, kept: Sequence[str]) -> Callable[..., tuple[jax.Array, dict[str, jax.Array]]]:
            _, gather_layer = gathering[stack.name]

            def layer(x: jax.Array, each: tuple[Weights, LayerKind]) -> tuple[jax.Array, dict[str, jax.Array]]:
                parts, kind = each
                module = bound(self._layers[stack.name], gather_layer(parts))
                left = module.outputs(x, angles(kind), attend, kind.is_global)
                return self._constrained(left["residual"]), {name: left[name] for name in kept}

            return layer

        x = embedded = self._scaled(look_up(weights["embedding"], tokens, self.mesh, self._dtype))
        outputs = []
        for first, end, kept in stretches:
            found = []
            for stack in self.shape.stacks:
                a, b = max(first, stack.first) - stack.first, min(end, stack.end) - stack.first
                if a < b:
                    whole = (gathering[stack.name][0], self._kinds_of(stack))
                    part = jax.tree.map(lambda leaf, a=a, b=b: leaf[a:b], whole)
                    x, left = jax.lax.scan(through(stack, kept), x, part)
                    found.append(left)
            outputs.append(found[0] if len(found) == 1 else jax.tree.map(lambda *each: jnp.concatenate(each), *found))
        return Trace(embedded, outputs, bound(self._norm, weights["norm"])(x))

    def prefill(self, weights: Weights, tokens: jax.Array, length: int) -> tuple[jax.Array, Pasts]:
        """The float32 logits `[B, V]` after the tokens, and the key-value caches with them.

        Args:
            weights: of the model.
            tokens: int32 `[B, P]`, the beginning of a document.
            length: total positions that the caches have room for.
        """
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        angles, attend = self._angles(positions), self._attend_alone(jnp.zeros_like(tokens))

        def through(stack: Stack) -> Callable[..., tuple[jax.Array, Past]]:
            def layer(x: jax.Array, each: tuple[Weights, LayerKind]) -> tuple[jax.Array, Past]:
                parts, kind = each
                x, past, _ = bound(self._layers[stack.name], parts)(x, angles(kind), attend, kind.is_global)
                return x, past

            return layer

        x, cast, pasts = self._embedded(weights, tokens), self._cast(weights), []
        for stack in self.shape.stacks:
            x, past = jax.lax.scan(through(stack), x, (cast[stack.name], self._kinds_of(stack)))
            pasts.append(past)
        room = ((0, 0), (0, 0), (0, length - tokens.shape[1]), (0, 0), (0, 0))
        return self._logits(weights, x[:, -1:]), jax.tree.map(lambda seen: jnp.pad(seen, room), tuple(pasts))

    def next(self, weights: Weights, tokens: jax.Array, at: jax.Array, past: Pasts) -> tuple[jax.Array, Pasts]:
        """The float32 logits `[B, V]` after one more token, and the caches with it.

        Args:
            weights: of the model.
            tokens: int32 `[B]`, one for each row.
            at: int32, the number of earlier tokens.
            past: their caches.
        """
        angles = self._angles(jnp.broadcast_to(at, (tokens.shape[0], 1)))

        def through(stack: Stack) -> Callable[..., tuple[jax.Array, Past]]:
            def layer(x: jax.Array, each: tuple[Weights, Past, LayerKind]) -> tuple[jax.Array, Past]:
                parts, before, kind = each
                module = bound(self._layers[stack.name], parts)
                after: tuple[jax.Array, Past] = module.next(x, angles(kind), before, at, kind.is_global)
                return after

            return layer

        x, cast, pasts = self._embedded(weights, tokens[:, None]), self._cast(weights), []
        for stack, before in zip(self.shape.stacks, past, strict=True):
            x, after = jax.lax.scan(through(stack), x, (cast[stack.name], before, self._kinds_of(stack)))
            pasts.append(after)
        return self._logits(weights, x), tuple(pasts)

    def whole(self, weights: Weights) -> Weights:
        """All weights on every device, the matrices in the compute dtype."""
        everywhere = NamedSharding(self.mesh, REPLICATED)
        return jax.tree.map(lambda w: jax.lax.with_sharding_constraint(w, everywhere), self._cast(weights))

    @property
    def whole_bytes(self) -> int:
        """The memory that `whole` takes on each device."""
        return self.shape.num_parameters * self._dtype.itemsize

    def _adapters(self, weights: Weights) -> Adapters:
        """The adapters of all layers, stacked; this decoder has none."""
        return quantized.NONE

    def _of_axes(self, make: Callable[[tuple[str, ...]], PartitionSpec]) -> Weights:
        return jax.tree.map(make, self.axes, is_leaf=lambda node: isinstance(node, tuple))

    def _layer_gathering(
        self, weights: Weights, stack: Stack, *, leave_narrow: bool = False
    ) -> tuple[Weights, Callable[[Weights], Weights]]:
        """The stacked weights as the scan's input, and a function that gathers one layer's part of them.

        `leave_narrow`: matrices that are multiplied in a narrow type keep their sharding, for `narrow_over`.

        The compiler would convert all layers before the loop anyway. If they are converted here, their gradients leave
        the loop in the type in which they were exchanged, in half the memory.
        """
        kept, seen = self.specs[stack.name], self.gathered_specs[stack.name]
        layers = self._cast_as(weights[stack.name], kept)
        if self._gathers_at_once:
            return self._gathered(layers, kept, seen), lambda parts: parts
        of_one = [jax.tree.map(lambda spec: PartitionSpec(*spec[1:]), specs) for specs in (kept, seen)]

        def gather_layer(parts: Weights) -> Weights:
            gathered = self._gathered(parts, *of_one)
            for module, names in NARROW.items() if leave_narrow else ():
                gathered[module] |= {name: parts[module][name] for name in names}
            return gathered

        return layers, gather_layer

    def _gathered(self, weights: Weights, kept: Weights, seen: Weights) -> Weights:
        def one(w: jax.Array, kept: PartitionSpec, seen: PartitionSpec) -> jax.Array:
            return gather(w, self.mesh, kept, seen) if kept != REPLICATED else w

        return jax.tree.map(one, weights, kept, seen)

    @property
    def _gathers_narrow(self) -> bool:
        """Whether matrices are gathered in the narrow type in which they are multiplied."""
        return self.shape.gathers_narrow and not self._gathers_at_once

    @property
    def _gathers_at_once(self) -> bool:
        is_tpu = self.mesh.devices.flat[0].platform == "tpu"
        return not is_tpu and self.whole_bytes <= GATHERED_AT_ONCE_BYTES

    def _cast(self, weights: Weights) -> Weights:
        return self._cast_as(weights, self.specs)

    def _cast_as(self, weights: Weights, specs: Weights) -> Weights:
        """The weights with matrices in the compute dtype; vectors stay in float32: norms are computed in it."""
        return jax.tree.map(lambda w, spec: w if spec == REPLICATED else w.astype(self._dtype), weights, specs)

    def travelling(self, gradients: Weights) -> Weights:
        """Gradients in the type in which replicas exchange them, as in a step of one part."""
        # On CPU, XLA always sums in float32, and aborts on a narrower sum in `of_each_replica`.
        return gradients if self.mesh.devices.flat[0].platform == "cpu" else self._cast(gradients)

    def _constrained(self, x: jax.Array) -> jax.Array:
        """The residual stream, with rows and positions divided over the mesh."""
        return jax.lax.with_sharding_constraint(x, lying(self.mesh, POSITIONS))

    def _angles(self, positions: jax.Array) -> Callable[[LayerKind], Angles]:
        """Returns a function from the kind of a layer to its rotary angles."""
        shape = self.shape
        width = shape.rotary_dim or shape.head_dim
        everywhere = rotary_angles(positions, rotary_dim=width, theta=shape.rope_theta, scaling=shape.rope_scaling)
        local, still = everywhere, (jnp.ones_like(everywhere[0]), jnp.zeros_like(everywhere[1]))
        if shape.local_rope_theta is not None:
            local = rotary_angles(positions, rotary_dim=width, theta=shape.local_rope_theta)

        def of_kind(kind: LayerKind) -> Angles:
            found = everywhere
            if shape.local_rope_theta is not None:
                found = jax.tree.map(lambda a, b: jnp.where(kind.is_global, a, b), everywhere, local)
            if all(shape.layers_turned):
                return found
            turned: Angles = jax.tree.map(lambda a, b: jnp.where(kind.is_turned, a, b), found, still)
            return turned

        return of_kind

    def _attend_alone(self, segment_ids: jax.Array) -> Attend:
        """Returns attention that all devices compute identically."""
        shape = self.shape

        def attend(
            query: jax.Array,
            key: jax.Array,
            value: jax.Array,
            is_global: jax.Array | bool,
            sinks: jax.Array | None = None,
        ) -> jax.Array:
            def with_window(window: int | None) -> jax.Array:
                return blocked_attention(
                    query,
                    key,
                    value,
                    segment_ids,
                    segment_ids,
                    scale=shape.score_scale,
                    window=window,
                    softcap=shape.attention_softcap,
                    sinks=sinks,
                )

            if len(set(shape.global_layers)) == 1:
                return with_window(shape.window)
            found: jax.Array = jax.lax.cond(is_global, lambda: with_window(None), lambda: with_window(shape.window))
            return found

        return attend

    def _embedded(self, weights: Weights, tokens: jax.Array) -> jax.Array:
        return self._scaled(weights["embedding"][tokens].astype(self._dtype))

    def _scaled(self, x: jax.Array) -> jax.Array:
        factor = self.shape.embedding_factor * (self.shape.embed_dim**0.5 if self.shape.scaled_embedding else 1)
        return x if factor == 1 else x * jnp.asarray(factor, x.dtype)

    def _normed(self, weights: Weights, x: jax.Array) -> jax.Array:
        """What the output projection makes logits of: dividing it is cheaper than dividing them."""
        normed: jax.Array = bound(self._norm, weights["norm"])(x)
        return normed if self.shape.logits_divisor == 1 else normed / self.shape.logits_divisor

    def _logits(self, weights: Weights, x: jax.Array) -> jax.Array:
        """The float32 logits `[B, V]` of `x` `[B, 1, D]`."""
        normed = self._normed(weights, x)[:, 0]
        logits = jnp.matmul(normed, self._output(weights).astype(self._dtype), preferred_element_type=jnp.float32)
        return soft_capped(logits, self.shape.logit_softcap)

    def _kinds_of(self, stack: Stack) -> LayerKind:
        whole = (self.shape.global_layers, self.shape.layers_turned)
        return LayerKind(*(jnp.array(values[stack.first : stack.end]) for values in whole))

    @property
    def _dtype(self) -> np.dtype[Any]:
        return jnp.dtype(self.shape.compute_dtype)

    def _output(self, weights: Weights) -> jax.Array:
        output: jax.Array = weights["embedding"].T if self.shape.tie_embeddings else weights["output"]
        return output


def soft_capped(logits: jax.Array, cap: float | None) -> jax.Array:
    """Cap · tanh(logits / cap), as in Gemma 2."""
    return logits if cap is None else cap * jnp.tanh(logits / cap)


def _axes(path: tuple[Any, ...], parameter: nnx.Param) -> tuple[str, ...]:
    axes: tuple[str, ...] = parameter.get_metadata()["axes"]
    return (LAYERS, *axes) if path[0] in STACKS else axes
