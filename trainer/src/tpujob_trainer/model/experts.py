"""A mixture of experts: a router sends each token through a few of many feed-forward blocks.

No token is dropped: tokens are sorted by expert, and each expert's matrices multiply only its own tokens
(`jax.lax.ragged_dot`). Arrays: T tokens, E experts, X experts of each token, D embed, F mlp.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from tpujob_trainer.model import quantized
from tpujob_trainer.model.axes import CONTEXT, EXPERT, ROW_AXES, TENSOR
from tpujob_trainer.model.families.base import SigmoidRouter
from tpujob_trainer.model.partitioning import of_each_device
from tpujob_trainer.model.quantized import Adapters, of_experts


class Blocks(NamedTuple):
    """The weights of experts."""

    gate: jax.Array
    """`[E, D, F]`."""
    up: jax.Array
    """`[E, D, F]`."""
    down: jax.Array
    """`[E, F, D]`."""
    biases: tuple[jax.Array, jax.Array, jax.Array] | None = None
    """Of gate, up and down: `[E, F]`, `[E, F]` and `[E, D]`."""
    adapters: Adapters = quantized.NONE
    """By the names gate, up and down; each of them may be absent."""


class Routing(NamedTuple):
    """The experts of a layer's tokens."""

    scores: jax.Array
    """float32 `[T, E]`, the router's logits."""
    weights: jax.Array
    """float32 `[T, X]`."""
    indices: jax.Array
    """int32 `[T, X]`, the experts of each token."""
    has_sigmoids: bool = False
    """An expert's probability is its share of the sum of all sigmoids; otherwise of a softmax."""


class RouterLosses(NamedTuple):
    """Auxiliary losses of a router; float32, means over tokens, and over layers if there are several."""

    balance: jax.Array
    """E · Σ over experts of the share of tokens that they get times their mean probability: X if all experts get the
    same, E · X at most (Fedus et al. 2021, equations 4 to 6, for several experts of a token)."""
    z: jax.Array
    """The squared logarithm of the softmax's denominator (Zoph et al. 2022, equation 5)."""


def route(
    x: jax.Array, router: jax.Array, chosen: int, *, norm_topk: bool = True, bias: jax.Array | None = None
) -> Routing:
    """The experts of each token.

    Args:
        x: `[T, D]`.
        router: `[D, E]`.
        chosen: X.
        norm_topk: weights are a softmax over the chosen scores; otherwise their values in a softmax over all.
        bias: `[E]`, added to the scores; None: there is none.
    """
    scores = jnp.einsum("TD,DE->TE", x, router, preferred_element_type=jnp.float32)
    if bias is not None:
        scores += bias
    best, indices = jax.lax.top_k(scores, chosen)
    if norm_topk:
        return Routing(scores, jax.nn.softmax(best, axis=-1), indices)
    return Routing(scores, jnp.exp(best - jax.nn.logsumexp(scores, axis=-1, keepdims=True)), indices)


def route_by_sigmoid(
    x: jax.Array, router: jax.Array, chosen: int, bias: jax.Array, way: SigmoidRouter, *, norm_topk: bool
) -> Routing:
    """The experts of each token by sigmoids of their scores, from the groups with the highest sum of two experts.

    DeepSeek-AI 2024, DeepSeek-V3, equations 14 to 16. No gradient reaches the bias.

    Args:
        x: `[T, D]`.
        router: `[D, E]`.
        chosen: X.
        bias: `[E]`, added to the sigmoids for the choice of experts, not for their weights.
        way: groups of experts, and the factor of the weights.
        norm_topk: weights are divided by their sum over the chosen experts.
    """
    scores = jnp.einsum("TD,DE->TE", x, router, preferred_element_type=jnp.float32)
    sigmoids = jax.nn.sigmoid(scores)
    grouped = (sigmoids + bias).reshape(len(x), way.groups, -1)
    if way.groups > 1:
        best = jnp.sum(jax.lax.top_k(grouped, 2)[0], axis=-1)
        _, open_groups = jax.lax.top_k(best, way.groups_per_token)
        is_open = jnp.any(jax.nn.one_hot(open_groups, way.groups, dtype=bool), axis=1)
        grouped = jnp.where(is_open[:, :, None], grouped, -jnp.inf)
    _, indices = jax.lax.top_k(grouped.reshape(scores.shape), chosen)
    weights = jnp.take_along_axis(sigmoids, indices, axis=-1)
    if norm_topk:
        weights /= jnp.sum(weights, axis=-1, keepdims=True) + 1e-20
    return Routing(scores, weights * way.scale, indices, has_sigmoids=True)


def router_losses(routing: Routing, counts: jax.Array) -> RouterLosses:
    """The router losses of one layer, over the tokens that count.

    Args:
        routing: of T tokens.
        counts: bool `[T]`.
    """
    experts = routing.scores.shape[1]
    tokens = jnp.maximum(jnp.sum(counts), 1).astype(jnp.float32)
    log_z = jax.nn.logsumexp(routing.scores, axis=-1)
    if routing.has_sigmoids:
        sigmoids = jax.nn.sigmoid(routing.scores)
        probabilities = sigmoids / jnp.sum(sigmoids, axis=-1, keepdims=True)
    else:
        probabilities = jnp.exp(routing.scores - log_z[:, None])
    probabilities = jnp.where(counts[:, None], probabilities, 0.0)
    went = jax.nn.one_hot(routing.indices, experts) * counts[:, None, None]
    shares, means = jnp.sum(went, axis=(0, 1)) / tokens, jnp.sum(probabilities, axis=0) / tokens
    return RouterLosses(
        balance=experts * jnp.sum(shares * means),
        z=jnp.sum(jnp.where(counts, jnp.square(log_z), 0.0)) / tokens,
    )


def mix(
    x: jax.Array,
    weights: jax.Array,
    indices: jax.Array,
    blocks: Blocks,
    combine: Callable[[jax.Array, jax.Array], jax.Array],
    *,
    first: jax.Array | int = 0,
) -> jax.Array:
    """The weighted sum of the outputs `[T, D]` of the experts on this device; other experts add nothing.

    Args:
        x: `[T, D]`.
        weights: `[T, X]`.
        indices: `[T, X]`, counted over all experts.
        blocks: of the experts on this device.
        combine: an expert's function of its gate and up projections.
        first: the number of the first expert on this device.
    """
    chosen = indices.shape[1]
    here = blocks.gate.shape[0]
    local = indices.ravel() - first
    is_here = (local >= 0) & (local < here)
    order = jnp.argsort(jnp.where(is_here, local, here), stable=True)
    counts = jnp.bincount(jnp.where(is_here, local, here), length=here + 1)[:here].astype(jnp.int32)
    of_token = order // chosen
    sent = x[of_token]

    def product(rows: jax.Array, name: str, matrix: jax.Array) -> jax.Array:
        found = jax.lax.ragged_dot(rows, matrix, counts)
        adapter = blocks.adapters.get(name)
        return found if adapter is None else found + of_experts(rows, adapter, counts)

    gate, up = product(sent, "gate", blocks.gate), product(sent, "up", blocks.up)
    if blocks.biases is not None:
        expert = jnp.clip(local[order], 0, here - 1)
        gate += blocks.biases[0][expert].astype(gate.dtype)
        up += blocks.biases[1][expert].astype(up.dtype)
    scales = jnp.where(is_here, weights.ravel(), 0.0)[order].astype(x.dtype)[:, None]
    # Weights are applied before the last product, so that the backward pass does not need its result.
    out = product(combine(gate, up) * scales, "down", blocks.down)
    if blocks.biases is not None:
        out += blocks.biases[2][expert].astype(out.dtype) * scales
    # Rows after the last expert's belong to no group; their values must not reach the sum, not even as 0 · NaN.
    found = jnp.where(jnp.arange(len(order))[:, None] < counts.sum(), out, 0)
    return jnp.zeros_like(x).at[of_token].add(found)


def mix_over(mesh: Mesh) -> Callable[..., jax.Array]:
    """Returns `mix` with the experts divided over `expert`, and their width over `tensor`.

    The tokens of all devices along `expert` are gathered on each of them and go through its experts, and the sums are
    scattered back to the tokens' devices.
    """
    tokens = PartitionSpec((*ROW_AXES, CONTEXT))
    wide, narrow = PartitionSpec(EXPERT, None, TENSOR), PartitionSpec(EXPERT, TENSOR)
    of_biases, whole = (narrow, narrow, PartitionSpec(EXPERT)), PartitionSpec(EXPERT)
    of_adapters = {"gate": (whole, wide), "up": (whole, wide), "down": (narrow, whole)}

    def over_mesh(
        x: jax.Array,
        weights: jax.Array,
        indices: jax.Array,
        blocks: Blocks,
        combine: Callable[[jax.Array, jax.Array], jax.Array],
    ) -> jax.Array:
        def of_device(x: jax.Array, weights: jax.Array, indices: jax.Array, blocks: Blocks) -> jax.Array:
            shards = mesh.shape[EXPERT]
            first = jax.lax.axis_index(EXPERT) * blocks.gate.shape[0]
            if shards > 1:
                x, weights, indices = (jax.lax.all_gather(a, EXPERT, tiled=True) for a in (x, weights, indices))
            if blocks.biases is not None and mesh.shape[TENSOR] > 1:
                # The sum over `tensor` must add the bias once, not once for each device.
                is_first = (jax.lax.axis_index(TENSOR) == 0).astype(blocks.biases[2].dtype)
                blocks = blocks._replace(biases=(*blocks.biases[:2], blocks.biases[2] * is_first))
            found = mix(x, weights, indices, blocks, combine, first=first)
            if mesh.shape[TENSOR] > 1:
                found = jax.lax.psum(found, TENSOR)
            return jax.lax.psum_scatter(found, EXPERT, tiled=True) if shards > 1 else found

        of_blocks = Blocks(
            wide,
            wide,
            narrow,
            of_biases if blocks.biases else None,
            {name: of_adapters[name] for name in blocks.adapters},
        )
        mapped = of_each_device(of_device, mesh, (tokens, tokens, tokens, of_blocks), tokens)
        found: jax.Array = mapped(x, weights, indices, blocks)
        return found

    return over_mesh
