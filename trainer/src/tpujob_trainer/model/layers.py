"""The parts of a decoder layer.

Arrays: B rows, S positions, D embed, N query heads, K key heads, H head width, V width of the values (H, except in
latent attention), F mlp.

The modules get their matrices in the compute dtype. They do not exchange data between devices: operations that do
(attention over the whole length, experts on other devices) are passed in as functions.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from tpujob_trainer.model import quantized
from tpujob_trainer.model.attention.attend import Attend
from tpujob_trainer.model.attention.blocked import softmax
from tpujob_trainer.model.attention.latent import LatentAttention
from tpujob_trainer.model.attention.rotary import Angles, rotate
from tpujob_trainer.model.experts import Blocks, Routing, mix, route, route_by_sigmoid
from tpujob_trainer.model.lora_config import OF_MLP
from tpujob_trainer.model.norm import INIT_STD, RMSNorm, residual_std, weight, zeros
from tpujob_trainer.model.quantized import PLAIN, Adapters, Products
from tpujob_trainer.model.remat import named
from tpujob_trainer.model.shape import ModelShape

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": functools.partial(jax.nn.gelu, approximate=True),
}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Past:
    """The key-value cache of one layer: T positions, of which the last ones may not be filled yet."""

    key: jax.Array
    """`[B, T, K, H]`, rotated by position."""
    value: jax.Array
    """`[B, T, K, V]`"""


class Attention(nnx.Module):
    """Causal self-attention in which several query heads share a key head; documents do not attend to each other."""

    def __init__(self, shape: ModelShape, *, rngs: nnx.Rngs) -> None:
        embed, width = shape.embed_dim, shape.head_dim
        self.query = weight(rngs, INIT_STD, embed=embed, heads=shape.heads, head_dim=width)
        self.key = weight(rngs, INIT_STD, embed=embed, kv_heads=shape.kv_heads, head_dim=width)
        self.value = weight(rngs, INIT_STD, embed=embed, kv_heads=shape.kv_heads, head_dim=width)
        self.out = weight(rngs, residual_std(shape), heads=shape.heads, head_dim=width, embed=embed)
        self.has_bias, self.has_norms, self.quantization = shape.qkv_bias, shape.qk_norm, shape.quantization
        if shape.qkv_bias:
            self.query_bias = zeros(heads=shape.heads, head_dim=width)
            self.key_bias = zeros(kv_heads=shape.kv_heads, head_dim=width)
            self.value_bias = zeros(kv_heads=shape.kv_heads, head_dim=width)
        self.has_out_bias, self.has_sinks = shape.out_bias, shape.sinks
        if shape.out_bias:
            self.out_bias = zeros(embed=embed)
        if shape.sinks:
            self.sinks = zeros(heads=shape.heads)
        if shape.wide_qk_norm:
            self.query_norm = RMSNorm(shape, heads=shape.heads, head_dim=width)
            self.key_norm = RMSNorm(shape, kv_heads=shape.kv_heads, head_dim=width)
        elif shape.qk_norm:
            self.query_norm = RMSNorm(shape, head_dim=width)
            self.key_norm = RMSNorm(shape, head_dim=width)

    def projected(
        self,
        x: jax.Array,
        angles: Angles,
        adapters: Adapters = quantized.NONE,
        multiply: Callable[..., jax.Array] = PLAIN.each,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries and keys, rotated by their positions, and values of the residual stream `x` `[B, S, D]`."""
        query = multiply("BSD,DNH->BSNH", x, self.query[...], self.quantization, adapters.get("query"))
        key = multiply("BSD,DKH->BSKH", x, self.key[...], self.quantization, adapters.get("key"))
        value = multiply("BSD,DKH->BSKH", x, self.value[...], self.quantization, adapters.get("value"))
        if self.has_bias:
            query += self.query_bias[...].astype(x.dtype)
            key += self.key_bias[...].astype(x.dtype)
            value += self.value_bias[...].astype(x.dtype)
        if self.has_norms:
            query, key = self.query_norm(query), self.key_norm(key)
        return rotate(query, angles), rotate(key, angles), value

    def joined(
        self,
        seen: jax.Array,
        adapters: Adapters = quantized.NONE,
        multiply: Callable[..., jax.Array] = PLAIN.each,
    ) -> jax.Array:
        """The output that is added to the residual stream, from the heads' results `[B, S, N, H]`."""
        added = multiply("BSNH,NHD->BSD", seen, self.out[...], self.quantization, adapters.get("out"))
        return added + self.out_bias[...].astype(added.dtype) if self.has_out_bias else added

    @property
    def scores_of_nothing(self) -> jax.Array | None:
        """The heads' sinks `[N]`; None: there are none."""
        return self.sinks[...] if self.has_sinks else None


def combined(shape: ModelShape) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Returns an expert's function of its gate and up projections."""
    if shape.swiglu_alpha is None:
        return lambda gate, up: ACTIVATIONS[shape.activation](gate) * up
    alpha, limit = shape.swiglu_alpha, shape.swiglu_limit

    def clamped(gate: jax.Array, up: jax.Array) -> jax.Array:
        if limit is not None:
            gate, up = jnp.minimum(gate, limit), jnp.clip(up, -limit, limit)
        return (up + 1) * gate * jax.nn.sigmoid(alpha * gate)

    return clamped


class MLP(nnx.Module):
    """A gated feed-forward block: down(activation(gate(x)) · up(x)) (Shazeer 2020)."""

    def __init__(self, shape: ModelShape, *, rngs: nnx.Rngs) -> None:
        self.gate = weight(rngs, INIT_STD, embed=shape.embed_dim, mlp=shape.mlp_dim)
        self.up = weight(rngs, INIT_STD, embed=shape.embed_dim, mlp=shape.mlp_dim)
        self.down = weight(rngs, residual_std(shape), mlp=shape.mlp_dim, embed=shape.embed_dim)
        self.activation, self.quantization = shape.activation, shape.quantization

    def __call__(self, x: jax.Array, adapters: Adapters = quantized.NONE, products: Products = PLAIN) -> jax.Array:
        """The output that is added to the residual stream `x` `[B, S, D]`."""
        gate = products.widen("BSD,DF->BSF", x, self.gate[...], self.quantization, adapters.get("gate"))
        up = products.widen("BSD,DF->BSF", x, self.up[...], self.quantization, adapters.get("up"))
        gate, up = named("mlp", (gate, up))
        hidden = ACTIVATIONS[self.activation](gate) * up
        return products.each("BSF,FD->BSD", hidden, self.down[...], self.quantization, adapters.get("down"))


class Experts(nnx.Module):
    """Many gated feed-forward blocks, of which each token goes through a few."""

    def __init__(self, shape: ModelShape, *, rngs: nnx.Rngs) -> None:
        assert shape.experts is not None
        wide = {"experts": shape.experts, "embed": shape.embed_dim, "mlp": shape.mlp_dim}
        self.router = weight(rngs, INIT_STD, embed=shape.embed_dim, experts=shape.experts)
        self.has_pairs, self.combine = shape.swiglu_alpha is not None, combined(shape)
        if self.has_pairs:
            self.gate_up = weight(rngs, INIT_STD, **wide, pair=2)
        else:
            self.gate = weight(rngs, INIT_STD, **wide)
            self.up = weight(rngs, INIT_STD, **wide)
        self.has_bias = shape.experts_bias
        self.sigmoid_router = shape.sigmoid_router
        if shape.experts_bias or shape.sigmoid_router:
            self.router_bias = zeros(experts=shape.experts)
        if shape.experts_bias:
            self.gate_up_bias = zeros(experts=shape.experts, mlp=shape.mlp_dim, pair=2)
            self.down_bias = zeros(experts=shape.experts, embed=shape.embed_dim)
        down = {"experts": shape.experts, "mlp": shape.mlp_dim, "embed": shape.embed_dim}
        self.down = weight(rngs, residual_std(shape), **down)
        if shape.shared_mlp_dim is not None:
            self.shared = MLP(dataclasses.replace(shape, mlp_dim=shape.shared_mlp_dim), rngs=rngs)
        if shape.shared_gate:
            self.shared_gate = weight(rngs, INIT_STD, embed=shape.embed_dim, one=1)
        self.has_shared, self.has_gate = shape.shared_mlp_dim is not None, shape.shared_gate
        self.chosen, self.norm_topk = shape.experts_per_token, shape.norm_topk

    def __call__(
        self,
        x: jax.Array,
        dispatch: Callable[..., jax.Array] = mix,
        adapters: Adapters = quantized.NONE,
    ) -> tuple[jax.Array, Routing]:
        """The output that is added to the residual stream `x` `[B, S, D]`, and the routing of its tokens.

        `dispatch` has the signature of `experts.mix`.
        """
        tokens = x.reshape(-1, x.shape[-1])
        routing = self._routing(tokens)
        added = dispatch(tokens, routing.weights, routing.indices, self._blocks(adapters), self.combine)
        return added.reshape(x.shape) + self._shared(x) if self.has_shared else added.reshape(x.shape), routing

    def _routing(self, tokens: jax.Array) -> Routing:
        router, norm_topk = self.router[...], self.norm_topk
        if self.sigmoid_router is not None:
            bias = self.router_bias[...]
            return route_by_sigmoid(tokens, router, self.chosen, bias, self.sigmoid_router, norm_topk=norm_topk)
        bias = self.router_bias[...] if self.has_bias else None
        return route(tokens, router, self.chosen, norm_topk=norm_topk, bias=bias)

    def _blocks(self, adapters: Adapters) -> Blocks:
        if not self.has_pairs:
            mine = {name: adapters[name] for name in OF_MLP if name in adapters}
            return Blocks(self.gate[...], self.up[...], self.down[...], adapters=mine)
        pairs = self.gate_up[...]
        biases = (self.gate_up_bias[..., 0], self.gate_up_bias[..., 1], self.down_bias[...]) if self.has_bias else None
        return Blocks(pairs[..., 0], pairs[..., 1], self.down[...], biases)

    def _shared(self, x: jax.Array) -> jax.Array:
        """The output of the shared expert, which every token goes through."""
        added = self.shared(x)
        return added * jax.nn.sigmoid(jnp.einsum("BSD,DO->BSO", x, self.shared_gate[...])) if self.has_gate else added


class Layer(nnx.Module):
    """Attention and feed-forward, each normalised before, after or both, and added to the stream."""

    def __init__(self, shape: ModelShape, *, rngs: nnx.Rngs) -> None:
        self.has_experts, self.has_post_norms = bool(shape.experts), shape.post_norms
        self.has_pre_norms, self.factor = shape.pre_norms, shape.residual_factor
        if shape.pre_norms:
            self.attention_norm = RMSNorm(shape)
            self.mlp_norm = RMSNorm(shape)
        self.attention = (LatentAttention if shape.latent else Attention)(shape, rngs=rngs)
        if shape.experts:
            self.experts = Experts(shape, rngs=rngs)
        else:
            self.mlp = MLP(shape, rngs=rngs)
        if shape.post_norms:
            self.post_attention_norm = RMSNorm(shape)
            self.post_mlp_norm = RMSNorm(shape)
        self.window, self.scale, self.softcap = shape.window, shape.score_scale, shape.attention_softcap

    def __call__(
        self,
        x: jax.Array,
        angles: Angles,
        attend: Attend,
        is_global: jax.Array | bool = True,
        dispatch: Callable[..., jax.Array] = mix,
        adapters: Adapters = quantized.NONE,
        products: Products = PLAIN,
    ) -> tuple[jax.Array, Past, Routing | None]:
        """The residual stream `[B, S, D]` after this layer, its keys and values, and the routing of its tokens."""
        x = named("input", x)
        query, key, value = named("qkv", self._projected(x, angles, adapters, products.each))
        seen = attend(query, key, value, is_global, self.attention.scores_of_nothing)
        x = x + self._attention_output(seen, adapters, products.each)
        added, routing = self._mlp_output(x, dispatch, adapters, products)
        return x + added, Past(key, value), routing

    def next(
        self, x: jax.Array, angles: Angles, past: Past, at: jax.Array, is_global: jax.Array | bool = True
    ) -> tuple[jax.Array, Past]:
        """The residual stream `[B, 1, D]` of one position after `at` others, and the cache with it."""
        query, key, value = self._projected(x, angles)
        past = Past(
            jax.lax.dynamic_update_slice_in_dim(past.key, key, at, axis=1),
            jax.lax.dynamic_update_slice_in_dim(past.value, value, at, axis=1),
        )
        x = x + self._attention_output(self._seen(query, past, at, is_global))
        return x + self._mlp_output(x, mix)[0], past

    def _seen(self, query: jax.Array, past: Past, at: jax.Array, is_global: jax.Array | bool) -> jax.Array:
        rows, _, heads, width = query.shape
        length, key_heads = past.key.shape[1:3]
        grouped = query.reshape(rows, key_heads, heads // key_heads, width)
        scores = jnp.einsum("BKGH,BTKH->BKGT", grouped, past.key, preferred_element_type=jnp.float32) * self.scale
        if self.softcap is not None:
            scores = self.softcap * jnp.tanh(scores / self.softcap)
        behind = at - jnp.arange(length)
        sees = (behind >= 0) & (is_global | (behind < (self.window or length)))
        sinks = self.attention.scores_of_nothing
        of_heads = None if sinks is None else sinks.reshape(1, key_heads, -1, 1)
        probabilities = softmax(jnp.where(sees, scores, -1e30), of_heads).astype(past.value.dtype)
        return jnp.einsum("BKGT,BTKV->BKGV", probabilities, past.value).reshape(rows, 1, heads, -1)

    def outputs(
        self, x: jax.Array, angles: Angles, attend: Attend, is_global: jax.Array | bool = True
    ) -> dict[str, jax.Array]:
        """The outputs of attention and feed-forward, and the residual stream after them (`residual`): `[B, S, D]`."""
        query, key, value = self._projected(x, angles)
        attention = self._attention_output(attend(query, key, value, is_global, self.attention.scores_of_nothing))
        mlp, _ = self._mlp_output(x + attention, mix)
        return {"attention": attention, "mlp": mlp, "residual": x + attention + mlp}

    def _projected(
        self,
        x: jax.Array,
        angles: Angles,
        adapters: Adapters = quantized.NONE,
        multiply: Callable[..., jax.Array] = PLAIN.each,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        normed = self.attention_norm(x) if self.has_pre_norms else x
        return self.attention.projected(normed, angles, adapters, multiply)

    def _attention_output(
        self,
        seen: jax.Array,
        adapters: Adapters = quantized.NONE,
        multiply: Callable[..., jax.Array] = PLAIN.each,
    ) -> jax.Array:
        added = self.attention.joined(seen, adapters, multiply)
        return self._weighed(self.post_attention_norm(added) if self.has_post_norms else added)

    def _mlp_output(
        self,
        x: jax.Array,
        dispatch: Callable[..., jax.Array],
        adapters: Adapters = quantized.NONE,
        products: Products = PLAIN,
    ) -> tuple[jax.Array, Routing | None]:
        normed = self.mlp_norm(x) if self.has_pre_norms else x
        if self.has_experts:
            added, routing = self.experts(normed, dispatch, adapters)
        else:
            added, routing = self.mlp(normed, adapters, products), None
        return self._weighed(self.post_mlp_norm(added) if self.has_post_norms else added), routing

    def _weighed(self, added: jax.Array) -> jax.Array:
        return added if self.factor == 1 else added * self.factor


def bound(parts: tuple[nnx.GraphDef, nnx.State], weights: dict[str, Any]) -> Any:
    """A module with these weights; in a jitted function that costs nothing at run time."""
    structure, abstract = parts
    state = jax.tree.map(lambda leaf: leaf, abstract)
    nnx.replace_by_pure_dict(state, weights)
    return nnx.merge(structure, state)
