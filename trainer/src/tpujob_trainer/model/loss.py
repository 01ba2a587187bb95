"""Cross-entropy over the mesh, a chunk of tokens at a time.

Each device holds the output columns of a part of the vocabulary. The hidden states of a chunk come to all devices, the
logits of a token are spread over them, and of a softmax only maxima and sums are exchanged. Neither the output matrix
nor its gradient is ever whole, and the logits are computed once: the gradient is taken where they are, as the loss
is the last thing that is computed.

Arrays: T tokens of a device, C tokens of a chunk, D embed, V vocabulary.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from tpujob_trainer.model.partitioning import POSITIONS, REPLICATED, ROW_AXES, TENSOR, WEIGHT_AXES

CHUNK_BYTES = 256 * 2**20
"""Logits of one chunk on one device."""

OUTPUT = PartitionSpec(WEIGHT_AXES)
"""`[D, V]` as it is kept."""

GROUP = (*WEIGHT_AXES, TENSOR)
"""Over which the vocabulary is divided while the loss is computed."""


def num_chunks(tokens: int, vocab_size: int) -> int:
    """In how many chunks the logits of a device's tokens stay within CHUNK_BYTES."""
    return max(1, min(tokens, -(-tokens * vocab_size * 4 // CHUNK_BYTES)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def cross_entropy(
    hidden: jax.Array, output: jax.Array, targets: jax.Array, mask: jax.Array, mesh: Mesh, softcap: float | None
) -> jax.Array:
    """The sum of -log p(target) over the positions that count, float32.

    Args:
        hidden: `[B, S, D]`, in the type of computation.
        output: float32 `[D, V]`, D divided over the mesh.
        targets: int32 `[B, S]`.
        mask: bool `[B, S]`: which positions count.
        mesh: over which all lie.
        softcap: logits x become cap · tanh(x / cap).
    """
    return jnp.sum(token_losses(hidden, output, targets, mask, mesh, softcap))


def token_losses(
    hidden: jax.Array, output: jax.Array, targets: jax.Array, mask: jax.Array, mesh: Mesh, softcap: float | None
) -> jax.Array:
    """-log p(target) of each position, float32 `[B, S]`; 0 where it does not count. Not to be differentiated."""

    def of_device(hidden: jax.Array, output: jax.Array, targets: jax.Array, mask: jax.Array) -> jax.Array:
        columns = _columns(output, mesh, hidden.dtype)

        def one(_: None, chunk: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[None, jax.Array]:
            _, _, losses = _chunk(*chunk, columns, mesh, softcap)
            return None, _own(losses, mesh)

        _, losses = jax.lax.scan(one, None, _cut(hidden, targets, mask, output.shape[1]))
        return losses.ravel()[: targets.size].reshape(targets.shape)

    specs = (POSITIONS, OUTPUT, POSITIONS, POSITIONS)
    found: jax.Array = jax.shard_map(of_device, mesh=mesh, in_specs=specs, out_specs=POSITIONS, check_vma=False)(
        hidden, output, targets, mask
    )
    return found


def _forward(
    hidden: jax.Array, output: jax.Array, targets: jax.Array, mask: jax.Array, mesh: Mesh, softcap: float | None
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    def of_device(
        hidden: jax.Array, output: jax.Array, targets: jax.Array, mask: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        columns = _columns(output, mesh, hidden.dtype)

        def one(
            carry: tuple[jax.Array, jax.Array], chunk: tuple[jax.Array, jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            total, of_columns = carry
            states, of_logits, losses = _chunk(*chunk, columns, mesh, softcap)
            of_states = jnp.einsum("CV,DV->CD", of_logits, columns.values, preferred_element_type=jnp.float32)
            of_columns += jnp.einsum("CD,CV->DV", states, of_logits, preferred_element_type=jnp.float32)
            return (total + jnp.sum(losses), of_columns), _summed_back(of_states, mesh, hidden.dtype)

        start = (jnp.zeros((), jnp.float32), jnp.zeros(columns.values.shape, jnp.float32))
        (total, of_columns), of_hidden = jax.lax.scan(one, start, _cut(hidden, targets, mask, output.shape[1]))
        of_hidden = of_hidden.reshape(-1, hidden.shape[-1])[: targets.size].reshape(hidden.shape)
        outer = tuple(axis for axis in ROW_AXES if axis not in WEIGHT_AXES)
        return jax.lax.psum(total, outer), of_hidden, jax.lax.psum(_kept(of_columns, mesh, output.shape[1]), outer)

    specs = (POSITIONS, OUTPUT, POSITIONS, POSITIONS)
    mapped = jax.shard_map(
        of_device, mesh=mesh, in_specs=specs, out_specs=(REPLICATED, POSITIONS, OUTPUT), check_vma=False
    )
    total, of_hidden, of_output = mapped(hidden, output, targets, mask)
    return total, (of_hidden, of_output)


def _backward(
    mesh: Mesh, softcap: float | None, gradients: tuple[jax.Array, jax.Array], scale: jax.Array
) -> tuple[jax.Array, jax.Array, None, None]:
    of_hidden, of_output = gradients
    return of_hidden * scale.astype(of_hidden.dtype), of_output * scale, None, None


cross_entropy.defvjp(_forward, _backward)


def _chunk(
    hidden: jax.Array, targets: jax.Array, mask: jax.Array, columns: Columns, mesh: Mesh, softcap: float | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of a chunk of all devices: the hidden states, the gradient of the logits that are here, and the losses."""
    hidden, targets, mask = (_everywhere(x, mesh) for x in (hidden, targets, mask))
    raw = jnp.einsum("CD,DV->CV", hidden, columns.values, preferred_element_type=jnp.float32)
    capped = raw if softcap is None else softcap * jnp.tanh(raw / softcap)
    ids = columns.first + jnp.arange(capped.shape[1])
    logits = jnp.where(ids < columns.vocab_size, capped, -jnp.inf)
    highest = _over_group(jax.lax.pmax, jnp.max(logits, axis=1), mesh)
    powers = jnp.exp(logits - highest[:, None])
    sums = _over_group(jax.lax.psum, jnp.sum(powers, axis=1), mesh)
    is_target = ids == targets[:, None]
    of_target = _over_group(jax.lax.psum, jnp.sum(jnp.where(is_target, logits, 0.0), axis=1), mesh)
    is_token = (targets >= 0) & (targets < columns.vocab_size)
    losses = jnp.where(is_token, jnp.log(sums) + highest - of_target, jnp.nan)
    of_logits = powers / sums[:, None] - is_target
    if softcap is not None:
        of_logits *= 1 - jnp.square(capped / softcap)
    of_logits = jnp.where(mask[:, None], of_logits, 0.0).astype(hidden.dtype)
    return hidden, of_logits, jnp.where(mask, losses, 0.0)


class Columns(NamedTuple):
    """The part of the output matrix that is on this device while the loss is computed."""

    values: jax.Array
    """`[D, V / devices]`; columns behind the vocabulary are zero."""
    first: jax.Array
    """int32: the id of the first."""
    vocab_size: int


def _columns(output: jax.Array, mesh: Mesh, dtype: Any) -> Columns:
    """From `[D / devices, V]` as it is kept."""
    rows, vocab_size = output.shape
    shards, splits = _size(mesh, WEIGHT_AXES), mesh.shape[TENSOR]
    width = -(-vocab_size // (shards * splits))
    padded = jnp.pad(output.astype(dtype), ((0, 0), (0, shards * splits * width - vocab_size)))
    mine = padded.reshape(rows, shards, splits, width)[:, :, jax.lax.axis_index(TENSOR)]
    if shards > 1:
        mine = jax.lax.all_to_all(mine, WEIGHT_AXES, 1, 0, tiled=True)
    first = (jax.lax.axis_index(WEIGHT_AXES) * splits + jax.lax.axis_index(TENSOR)) * width
    return Columns(mine.reshape(rows * shards, width), first, vocab_size)


def _kept(gradient: jax.Array, mesh: Mesh, vocab_size: int) -> jax.Array:
    """The gradient of all columns `[D / devices, V]`, from that of those here."""
    depth, width = gradient.shape
    shards, splits = _size(mesh, WEIGHT_AXES), mesh.shape[TENSOR]
    mine = gradient.reshape(depth, 1, width)
    if shards > 1:
        mine = jax.lax.all_to_all(mine, WEIGHT_AXES, 0, 1, tiled=True)
    mine = mine[:, :, None]
    if splits > 1:
        mine = jax.lax.all_gather(mine, TENSOR, axis=2, tiled=True)
    return mine.reshape(depth // shards, -1)[:, :vocab_size]


def _cut(
    hidden: jax.Array, targets: jax.Array, mask: jax.Array, vocab_size: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The tokens of this device in chunks `[chunks, C, ...]`, the last one filled with tokens that do not count."""
    tokens = targets.size
    chunks = num_chunks(tokens, vocab_size)
    padding = -tokens % chunks

    def cut(x: jax.Array) -> jax.Array:
        return jnp.pad(x, ((0, padding),) + ((0, 0),) * (x.ndim - 1)).reshape(chunks, -1, *x.shape[1:])

    return cut(hidden.reshape(tokens, -1)), cut(targets.ravel()), cut(mask.ravel())


def _everywhere(x: jax.Array, mesh: Mesh) -> jax.Array:
    return jax.lax.all_gather(x, WEIGHT_AXES, tiled=True) if _size(mesh, WEIGHT_AXES) > 1 else x


def _own(x: jax.Array, mesh: Mesh) -> jax.Array:
    """Of what belongs to the tokens of all devices, that of this one."""
    size = x.shape[0] // _size(mesh, WEIGHT_AXES)
    return jax.lax.dynamic_slice_in_dim(x, jax.lax.axis_index(WEIGHT_AXES) * size, size)


def _summed_back(x: jax.Array, mesh: Mesh, dtype: Any) -> jax.Array:
    """Summed over the group in float32, each device's own tokens; they travel in the type of computation."""
    if mesh.shape[TENSOR] > 1:
        x = jax.lax.psum(x, TENSOR)
    shards = _size(mesh, WEIGHT_AXES)
    if shards == 1:
        return x.astype(dtype)
    # The TPU compiler makes a psum_scatter an exchange of the whole sum, twice the bytes.
    parts = jax.lax.all_to_all(x.astype(dtype), WEIGHT_AXES, 0, 0, tiled=True)
    own = parts.reshape(shards, -1, *x.shape[1:])
    return jnp.sum(own, axis=0, dtype=jnp.float32).astype(dtype)


def _over_group(reduce: Any, x: jax.Array, mesh: Mesh) -> jax.Array:
    return reduce(x, GROUP) if _size(mesh, GROUP) > 1 else x


def _size(mesh: Mesh, axes: tuple[str, ...]) -> int:
    return math.prod(mesh.shape[axis] for axis in axes)
