"""Cross-entropy over the mesh, a chunk of tokens at a time: no device ever has the logits of all its tokens.

The logits are computed once: the forward pass also computes the gradient, because nothing follows the loss. Either the
hidden states are sent to devices that each hold a part of the vocabulary, or the output matrix is gathered
(`output_columns.is_gathered`).

Arrays: T tokens of a device, C tokens of a chunk, D embed, V vocabulary.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from tpujob_trainer.model.axes import TENSOR, WEIGHT_AXES
from tpujob_trainer.model.embedding import (
    Columns,
    columns_here,
    gradient_as_kept,
    is_gathered,
    mesh_size,
    summed_between_replicas,
)
from tpujob_trainer.model.partitioning import POSITIONS, REPLICATED, of_each_device, summed_axes

CHUNK_BYTES = 256 * 2**20
"""The most bytes of one chunk's logits on one device."""

GATHERED_CHUNK_BYTES = 2**30
"""The same if the whole gradient of the output matrix is read and written for each chunk."""

TILE = 16
"""Rows of a matrix that the compiler keeps together in bfloat16."""

OUTPUT = PartitionSpec(WEIGHT_AXES)
"""Of the output matrix `[D, V]` in the weights."""


def num_chunks(tokens: int, vocab_size: int, limit_bytes: int) -> int:
    """The least number of chunks with logits within the limit, or up to twice as many if these divide the tokens."""
    least = max(1, min(tokens, -(-tokens * vocab_size * 4 // limit_bytes)))
    return next((chunks for chunks in range(least, min(2 * least, tokens) + 1) if tokens % chunks == 0), least)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def cross_entropy(
    hidden: jax.Array,
    output: jax.Array,
    targets: jax.Array,
    mask: jax.Array,
    mesh: Mesh,
    softcap: float | None,
    z_loss: float = 0.0,
) -> jax.Array:
    """The sum of -log p(target) over the positions that count, float32.

    Args:
        hidden: `[B, S, D]`, in the compute dtype.
        output: float32 `[D, V]`, D divided over the mesh.
        targets: int32 `[B, S]`.
        mask: bool `[B, S]`: which positions count.
        mesh: over which all are divided.
        softcap: logits x become cap · tanh(x / cap).
        z_loss: the gradient is that of the sum of -log p(target) + z_loss · (log Z)², Z the sum of exp(logits)
            (de Brébisson and Vincent 2016; Chowdhery and others 2022, PaLM, section 5). The value does not include it.
    """
    return jnp.sum(token_losses(hidden, output, targets, mask, mesh, softcap))


def token_losses(
    hidden: jax.Array, output: jax.Array, targets: jax.Array, mask: jax.Array, mesh: Mesh, softcap: float | None
) -> jax.Array:
    """-log p(target) of each position, float32 `[B, S]`; 0 if it does not count. Not to be differentiated."""

    def of_device(hidden: jax.Array, output: jax.Array, targets: jax.Array, mask: jax.Array) -> jax.Array:
        columns = columns_here(output, mesh, hidden.dtype, is_whole=_is_whole(targets, output, mesh))

        def one(_: None, chunk: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[None, jax.Array]:
            _, _, losses = _chunk(*chunk, columns, mesh, softcap, 0.0)
            return None, _own(losses, columns, mesh)

        _, losses = jax.lax.scan(one, None, _cut(hidden, targets, mask, columns))
        return losses.ravel()[: targets.size].reshape(targets.shape)

    specs = (POSITIONS, OUTPUT, POSITIONS, POSITIONS)
    found: jax.Array = of_each_device(of_device, mesh, specs, POSITIONS)(hidden, output, targets, mask)
    return found


def _forward(
    hidden: jax.Array,
    output: jax.Array,
    targets: jax.Array,
    mask: jax.Array,
    mesh: Mesh,
    softcap: float | None,
    z_loss: float = 0.0,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    summed = summed_axes()

    def of_device(
        hidden: jax.Array, output: jax.Array, targets: jax.Array, mask: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        columns = columns_here(output, mesh, hidden.dtype, is_whole=_is_whole(targets, output, mesh))
        cut = _cut(hidden, targets, mask, columns)
        find = _found_at_once if _is_kept(targets.size, columns, hidden.dtype) else _found_by_chunks
        total, of_hidden, of_output = find(cut, columns, mesh, softcap, z_loss)
        of_hidden = of_hidden.reshape(-1, hidden.shape[-1])[: targets.size].reshape(hidden.shape)
        total = jax.lax.psum(total, (*summed, *WEIGHT_AXES) if columns.is_whole else summed)
        return total, of_hidden, summed_between_replicas(of_output, mesh, summed, hidden.dtype)

    specs = (POSITIONS, OUTPUT, POSITIONS, POSITIONS)
    mapped = of_each_device(of_device, mesh, specs, (REPLICATED, POSITIONS, OUTPUT))
    total, of_hidden, of_output = mapped(hidden, output, targets, mask)
    return total, (of_hidden, of_output)


Cut = tuple[jax.Array, jax.Array, jax.Array]
"""Hidden states, targets and mask of a device's tokens, in chunks."""


def _found_by_chunks(
    cut: Cut, columns: Columns, mesh: Mesh, softcap: float | None, z_loss: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The sum of this device's losses, and the gradients of its hidden states and its part of the output matrix."""
    dtype = cut[0].dtype

    def one(carry: tuple[jax.Array, jax.Array], chunk: Cut) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        total, of_columns = carry
        states, of_logits, losses = _chunk(*chunk, columns, mesh, softcap, z_loss)
        of_columns += jnp.einsum("CD,CV->DV", states, of_logits, preferred_element_type=jnp.float32)
        return (total + jnp.sum(losses), of_columns), _of_states(of_logits, columns, mesh)

    start = (jnp.zeros((), jnp.float32), jnp.zeros(columns.values.shape, jnp.float32))
    (total, of_columns), of_hidden = jax.lax.scan(one, start, cut)
    return total, of_hidden, gradient_as_kept(of_columns, columns, mesh, dtype)


def _found_at_once(
    cut: Cut, columns: Columns, mesh: Mesh, softcap: float | None, z_loss: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """As `_found_by_chunks`, with the gradient of all logits kept: the matrix's is never whole, nor reread by chunk."""

    def one(total: jax.Array, chunk: Cut) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        _, of_logits, losses = _chunk(*chunk, columns, mesh, softcap, z_loss)
        return total + jnp.sum(losses), (_of_states(of_logits, columns, mesh), of_logits)

    total, (of_hidden, of_logits) = jax.lax.scan(one, jnp.zeros((), jnp.float32), cut)

    def of_block(states: jax.Array) -> jax.Array:
        found = jnp.einsum("NCD,NCV->DV", states, of_logits, preferred_element_type=jnp.float32)
        return gradient_as_kept(found, columns, mesh, states.dtype)

    # A block has the same number of rows of each device's part of the matrix.
    shards = mesh_size(mesh, WEIGHT_AXES)
    rows = cut[0].shape[-1] // shards
    blocks = next(each for each in (8, 4, 2, 1) if rows % (TILE * each) == 0 or each == 1)
    states = cut[0].reshape(*cut[0].shape[:2], shards, blocks, -1)
    states = jnp.moveaxis(states, 3, 0).reshape(blocks, *cut[0].shape[:2], -1)
    of_output = jax.lax.map(of_block, states)
    return total, of_hidden, of_output.reshape(rows, -1)


def _is_kept(tokens: int, columns: Columns, dtype: Any) -> bool:
    """Whether the gradient of all logits takes no more memory than a whole gradient of the matrix and a large chunk."""
    depth, width = columns.values.shape
    return columns.is_whole and tokens * width * dtype.itemsize <= depth * width * 4 + GATHERED_CHUNK_BYTES


def _of_states(of_logits: jax.Array, columns: Columns, mesh: Mesh) -> jax.Array:
    of_states = jnp.einsum("CV,DV->CD", of_logits, columns.values, preferred_element_type=jnp.float32)
    return _summed_back(of_states, columns, mesh, of_logits.dtype)


def _backward(
    mesh: Mesh, softcap: float | None, z_loss: float, gradients: tuple[jax.Array, jax.Array], scale: jax.Array
) -> tuple[jax.Array, jax.Array, None, None]:
    of_hidden, of_output = gradients
    return of_hidden * scale.astype(of_hidden.dtype), of_output * scale, None, None


cross_entropy.defvjp(_forward, _backward)


def _is_whole(targets: jax.Array, output: jax.Array, mesh: Mesh) -> bool:
    return is_gathered(tokens=targets.size, vocab_size=output.shape[1], mesh=mesh)


def _chunk(
    hidden: jax.Array,
    targets: jax.Array,
    mask: jax.Array,
    columns: Columns,
    mesh: Mesh,
    softcap: float | None,
    z_loss: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The hidden states of a chunk, gathered if needed, the gradient of this device's logits, and the losses."""
    hidden, targets, mask = (_everywhere(x, columns, mesh) for x in (hidden, targets, mask))
    raw = jnp.einsum("CD,DV->CV", hidden, columns.values, preferred_element_type=jnp.float32)
    capped = raw if softcap is None else softcap * jnp.tanh(raw / softcap)
    ids = columns.first + jnp.arange(capped.shape[1])
    logits = jnp.where(ids < columns.vocab_size, capped, -jnp.inf)
    highest = _over_columns(jax.lax.pmax, jnp.max(logits, axis=1), columns, mesh)
    powers = jnp.exp(logits - highest[:, None])
    sums = _over_columns(jax.lax.psum, jnp.sum(powers, axis=1), columns, mesh)
    is_target = ids == targets[:, None]
    of_target = _over_columns(jax.lax.psum, jnp.sum(jnp.where(is_target, logits, 0.0), axis=1), columns, mesh)
    is_token = (targets >= 0) & (targets < columns.vocab_size)
    log_z = jnp.log(sums) + highest
    losses = jnp.where(is_token, log_z - of_target, jnp.nan)
    of_logits = powers * ((1 + 2 * z_loss * log_z) / sums)[:, None] - is_target
    if softcap is not None:
        of_logits *= 1 - jnp.square(capped / softcap)
    of_logits = jnp.where(mask[:, None], of_logits, 0.0).astype(hidden.dtype)
    return hidden, of_logits, jnp.where(mask, losses, 0.0)


def _cut(hidden: jax.Array, targets: jax.Array, mask: jax.Array, columns: Columns) -> Cut:
    """The tokens of this device in chunks `[chunks, C, ...]`, the last one padded with tokens that do not count."""
    tokens = targets.size
    reads_gradient = columns.is_whole and not _is_kept(tokens, columns, hidden.dtype)
    limit = GATHERED_CHUNK_BYTES if reads_gradient else CHUNK_BYTES
    chunks = num_chunks(tokens, columns.vocab_size, limit)
    padding = -tokens % chunks

    def cut(x: jax.Array) -> jax.Array:
        return jnp.pad(x, ((0, padding),) + ((0, 0),) * (x.ndim - 1)).reshape(chunks, -1, *x.shape[1:])

    return cut(hidden.reshape(tokens, -1)), cut(targets.ravel()), cut(mask.ravel())


def _everywhere(x: jax.Array, columns: Columns, mesh: Mesh) -> jax.Array:
    """The values for the tokens of all devices among which the vocabulary is divided."""
    return jax.lax.all_gather(x, WEIGHT_AXES, tiled=True) if _travels(columns, mesh) else x


def _own(x: jax.Array, columns: Columns, mesh: Mesh) -> jax.Array:
    """The part for this device's tokens of values for the tokens of all these devices."""
    if not _travels(columns, mesh):
        return x
    size = x.shape[0] // mesh_size(mesh, WEIGHT_AXES)
    return jax.lax.dynamic_slice_in_dim(x, jax.lax.axis_index(WEIGHT_AXES) * size, size)


def _summed_back(x: jax.Array, columns: Columns, mesh: Mesh, dtype: Any) -> jax.Array:
    """The sums over all columns in float32, for this device's tokens; exchanged in the compute dtype."""
    if mesh.shape[TENSOR] > 1:
        x = jax.lax.psum(x, TENSOR)
    if not _travels(columns, mesh):
        return x.astype(dtype)
    # The TPU compiler turns a psum_scatter into an exchange of the whole sum, with twice the bytes.
    parts = jax.lax.all_to_all(x.astype(dtype), WEIGHT_AXES, 0, 0, tiled=True)
    own = parts.reshape(mesh_size(mesh, WEIGHT_AXES), -1, *x.shape[1:])
    return jnp.sum(own, axis=0, dtype=jnp.float32).astype(dtype)


def _travels(columns: Columns, mesh: Mesh) -> bool:
    return not columns.is_whole and mesh_size(mesh, WEIGHT_AXES) > 1


def _over_columns(reduce: Any, x: jax.Array, columns: Columns, mesh: Mesh) -> jax.Array:
    axes = (TENSOR,) if columns.is_whole else (*WEIGHT_AXES, TENSOR)
    return reduce(x, axes) if mesh_size(mesh, axes) > 1 else x
