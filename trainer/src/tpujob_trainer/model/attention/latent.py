"""Latent attention: queries, keys and values are projected from narrow vectors (DeepSeek-AI 2024, V2, section 2.1).

Rotary positions apply to a part of each head; that part of the keys is shared by all heads. Arrays: B rows, S
positions, D embed, N heads, H head width, V width of the values, R ranks of the latents, T rotary part of H.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from tpujob_trainer.model import quantized
from tpujob_trainer.model.attention.rotary import Angles, pairs_apart, rotate
from tpujob_trainer.model.norm import INIT_STD, RMSNorm, residual_std, weight
from tpujob_trainer.model.quantized import PLAIN, Adapters
from tpujob_trainer.model.shape import ModelShape

LATENT_EPS = 1e-6
"""Epsilon of the latents' norms, regardless of `rms_norm_eps`;
huggingface/transformers:src/transformers/models/deepseek_v3/modeling_deepseek_v3.py, `DeepseekV3RMSNorm`."""


class LatentAttention(nnx.Module):
    """Causal self-attention with as many key heads as query heads; has the interface of `layers.Attention`."""

    scores_of_nothing: jax.Array | None = None
    """None: latent attention has no sinks."""

    def __init__(self, shape: ModelShape, *, rngs: nnx.Rngs) -> None:
        latent = shape.latent
        assert latent is not None
        assert shape.rotary_dim is not None
        embed, heads, width = shape.embed_dim, shape.heads, shape.head_dim
        self.plain_dim = width - shape.rotary_dim
        self.are_adjacent, self.has_query_rank = latent.adjacent_pairs, latent.query_rank is not None
        if latent.query_rank is None:
            self.query = weight(rngs, INIT_STD, embed=embed, heads=heads, head_dim=width)
        else:
            self.query_down = weight(rngs, INIT_STD, embed=embed, rank=latent.query_rank)
            self.query_norm = RMSNorm(shape, eps=LATENT_EPS, rank=latent.query_rank)
            self.query = weight(rngs, INIT_STD, rank=latent.query_rank, heads=heads, head_dim=width)
        self.key_value_down = weight(rngs, INIT_STD, embed=embed, rank=latent.rank)
        self.turned = weight(rngs, INIT_STD, embed=embed, head_dim=shape.rotary_dim)
        self.key_value_norm = RMSNorm(shape, eps=LATENT_EPS, rank=latent.rank)
        wide = self.plain_dim + latent.value_dim
        self.key_value_up = weight(rngs, INIT_STD, rank=latent.rank, heads=heads, head_dim=wide)
        self.out = weight(rngs, residual_std(shape), heads=heads, head_dim=latent.value_dim, embed=embed)

    def projected(
        self,
        x: jax.Array,
        angles: Angles,
        adapters: Adapters = quantized.NONE,
        multiply: Callable[..., jax.Array] = PLAIN.each,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries and keys `[B, S, N, H]` and values `[B, S, N, V]` of the residual stream `x` `[B, S, D]`."""
        adapter = adapters.get("query")
        if self.has_query_rank:
            narrow = self.query_norm(jnp.einsum("BSD,DR->BSR", x, self.query_down[...]))
            query = multiply("BSR,RNH->BSNH", narrow, self.query[...], None, adapter)
        else:
            query = multiply("BSD,DNH->BSNH", x, self.query[...], None, adapter)
        plain, turned = jnp.split(query, [self.plain_dim], axis=-1)
        query = jnp.concatenate([plain, self._rotated(turned, angles)], axis=-1)
        latent = self.key_value_norm(jnp.einsum("BSD,DR->BSR", x, self.key_value_down[...]))
        both = jnp.einsum("BSR,RNH->BSNH", latent, self.key_value_up[...])
        plain, value = jnp.split(both, [self.plain_dim], axis=-1)
        turned = self._rotated(jnp.einsum("BSD,DT->BST", x, self.turned[...])[:, :, None], angles)
        everywhere = jnp.broadcast_to(turned, (*plain.shape[:3], turned.shape[-1]))
        return query, jnp.concatenate([plain, everywhere], axis=-1), value

    def joined(
        self,
        seen: jax.Array,
        adapters: Adapters = quantized.NONE,
        multiply: Callable[..., jax.Array] = PLAIN.each,
    ) -> jax.Array:
        """The output that is added to the residual stream, from the heads' results `[B, S, N, V]`."""
        return multiply("BSNV,NVD->BSD", seen, self.out[...], None, adapters.get("out"))

    def _rotated(self, x: jax.Array, angles: Angles) -> jax.Array:
        # Queries and keys are rearranged in the same way, which does not change their products.
        return rotate(pairs_apart(x) if self.are_adjacent else x, angles)
