"""One hop of ring attention on TPU, by the splash kernel and the two kernels of its backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from tpujob_trainer.model import splash
from tpujob_trainer.model.ring.attention import Inputs, Seen


@dataclass(frozen=True)
class BySplash:
    """Attention of a device's queries to the keys of one device: `attention.Part`."""

    device_kind: str
    """JAX's word."""
    window: int | None
    softcap: float | None
    is_interpreted: bool = False
    """Computed by XLA, for tests without a TPU."""

    def forward(self, distance: int | None, inputs: Inputs) -> Seen:
        """Attention to these keys alone."""
        kernel = self._kernel(distance, inputs, save_residuals=True)

        def of_row(row: Inputs) -> tuple[jax.Array, jax.Array]:
            values, (logsumexp,) = kernel(*row[:3], segment_ids=kernels.SegmentIds(*row[3:]))
            return values, logsumexp

        values, logsumexp = jax.vmap(of_row)(inputs)
        # Queries that a window lets see none of these keys are divided by a sum of zero.
        sees = logsumexp > kernels.DEFAULT_MASK_VALUE / 2
        values = jnp.where(sees[..., None], values.astype(jnp.float32), 0)
        return Seen(values, jnp.where(sees, logsumexp, -jnp.inf))

    def backward(
        self, distance: int | None, inputs: Inputs, seen: Seen, gradient: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Gradients of query, key and value, from what was seen of all keys and its gradient."""
        kernel = self._kernel(distance, inputs, save_residuals=False)
        # The kernel's own derivative knows the sums of its keys alone; its backward pass takes those of all keys.
        backward: Any = kernels._splash_attention_bwd  # noqa: SLF001

        def of_row(row: Inputs, seen: Seen, gradient: jax.Array) -> tuple[jax.Array, ...]:
            segments = kernels.SegmentIds(*row[3:])
            kept = (*row[:3], segments, None, *seen, kernel.dq_mask_info, kernel.dkv_mask_info)
            found: tuple[jax.Array, ...] = backward(**kernel.kwargs, res=kept, do=gradient)[3:6]
            return found

        of_query, of_key, of_value = jax.vmap(of_row)(inputs, seen, gradient)
        return of_query, of_key, of_value

    def _kernel(self, distance: int | None, inputs: Inputs, *, save_residuals: bool) -> Any:
        heads, length = inputs.query.shape[1:3]
        mask = self._mask(distance, length)
        return kernels.make_splash_mha(
            mask=masks.MultiHeadMask([mask] * heads),
            block_sizes=splash.block_sizes(self.device_kind, length),
            attn_logits_soft_cap=self.softcap,
            save_residuals=save_residuals,
            head_shards=1,
            q_seq_shards=1,
            interpret=self.is_interpreted,
        )

    def _mask(self, distance: int | None, length: int) -> masks.Mask:
        square = (length, length)
        if distance is None:
            return masks.FullMask(square)
        if self.window is None or self.window >= distance + length:
            return masks.CausalMask(square, distance)
        return masks.LocalMask(square, (self.window - 1, 0), distance)
