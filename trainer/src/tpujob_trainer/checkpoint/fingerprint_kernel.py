"""The two sums over the words that one device holds of an array, in one pass over its memory."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

GOLDEN = 0x9E3779B1
FIRST = 0x27D4EB2F
SECOND = 0x85EBCA77
"""Odd constants of xxHash32 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md)."""
AT_ONCE = 16
"""Most terms of one partial sum. XLA's compiler for CPUs fuses such a short reduction with the computation of its
terms; for one of 32 or more, it first writes all terms to new memory, which takes ten times as long."""
FEW = 4096
"""Most partial sums that are added in one pass."""
SMALL = 65536
"""Most words of an array that is summed in one pass, without the barriers and partial sums of larger ones."""


def sums_of_all(parts: Sequence[jax.Array], begins: Sequence[Sequence[jax.Array | int]]) -> jax.Array:
    """The sums of several parts of arrays, each as from `sums`: uint32 [parts, 2].

    Small parts of the same form are computed together: there are many of them, and each would take a second to compile.
    """
    alike: dict[object, list[int]] = {}
    for index, part in enumerate(parts):
        is_small = part.size <= SMALL and not jnp.issubdtype(part.dtype, jax.dtypes.extended)
        places = tuple(id(begin) for begin in begins[index])
        alike.setdefault((part.shape, part.dtype, places) if is_small else index, []).append(index)
    found: list[jax.Array] = [jnp.zeros(2, jnp.uint32)] * len(parts)
    for indices in alike.values():
        first = begins[indices[0]]
        if len(indices) == 1:
            found[indices[0]] = sums(parts[indices[0]], first)
            continue
        together = jax.vmap(lambda part, first=first: sums(part, first))(jnp.stack([parts[i] for i in indices]))
        for at, index in enumerate(indices):
            found[index] = together[at]
    return jnp.stack(found)


def sums(part: jax.Array, begins: Sequence[jax.Array | int]) -> jax.Array:
    """The two sums of a part of an array: uint32 [2].

    Args:
        part: Of any type and shape.
        begins: Where in the whole array the part begins; 0 along dimensions that are left out.
    """
    words = _words(part)
    if words.size == 0:
        return jnp.zeros(2, jnp.uint32)
    table = words.reshape(-1, words.shape[-1] if words.ndim else 1)
    axis, shapes = _split(*table.shape)
    found = []
    for seed, is_first in ((FIRST, True), (SECOND, False)):
        rows, columns = _positions(words.shape, begins, seed)
        if words.size > SMALL:
            # So that they are not recomputed for each word.
            rows, columns = jax.lax.optimization_barrier((rows, columns))
        grid, position = table.reshape(shapes[0]), rows.reshape(shapes[1]) + columns.reshape(shapes[2])
        terms = _mixed(grid ^ position if is_first else grid * np.uint32(SECOND) + position)
        if words.size > SMALL:
            found.append(_added(jnp.sum(terms, axis=axis, dtype=jnp.uint32)))
        else:
            found.append(jnp.sum(terms, dtype=jnp.uint32))
    return jnp.stack(found)


def _split(rows: int, columns: int) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """A short axis to sum along, and the shapes of table, rows and columns that have it."""
    of_rows, of_columns = _short(rows), _short(columns)
    if of_rows >= min(of_columns, AT_ONCE // 2):
        rest = rows // of_rows
        return 0, ((of_rows, rest, columns), (of_rows, rest, 1), (1, 1, columns))
    rest = columns // of_columns
    return 1, ((rows, of_columns, rest), (rows, 1, 1), (1, of_columns, rest))


def _added(partial: jax.Array) -> jax.Array:
    """The sum of an array, in passes that each make it much smaller."""
    while partial.size > FEW and (count := _short(partial.size)) > 1:
        partial = jnp.sum(jax.lax.optimization_barrier(partial).reshape(count, -1), axis=0, dtype=jnp.uint32)
    return jnp.sum(jax.lax.optimization_barrier(partial), dtype=jnp.uint32)


def _short(length: int) -> int:
    """The greatest divisor that is at most AT_ONCE."""
    return next(count for count in range(AT_ONCE, 0, -1) if length % count == 0)


def _positions(shape: tuple[int, ...], begins: Sequence[jax.Array | int], seed: int) -> tuple[jax.Array, jax.Array]:
    """A hash of each position, uint32, as two addends: one per row (all dimensions except the last), one per column."""
    hashes = []
    for axis, length in enumerate(shape):
        begin = begins[axis] if axis < len(begins) else 0
        index = jax.lax.iota(jnp.uint32, length) + jnp.asarray(begin, jnp.uint32)
        hashes.append(_mixed(index * np.uint32(GOLDEN) + np.uint32(seed + 2 * axis)))
    rows = jnp.zeros((1,) * max(len(shape) - 1, 0), jnp.uint32)
    for axis, hashed in enumerate(hashes[:-1]):
        rows = rows + hashed.reshape([-1 if at == axis else 1 for at in range(len(shape) - 1)])
    columns = hashes[-1] if hashes else jnp.zeros(1, jnp.uint32)
    return rows.ravel(), columns


def _words(leaf: jax.Array) -> jax.Array:
    """The bits of a leaf as uint32; 8-byte values become two words along a new last axis."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        leaf = jnp.stack([leaf.real, leaf.imag], axis=-1)
    if leaf.dtype.name in ("bool", "int2", "uint2", "int4", "uint4"):
        leaf = leaf.astype(jnp.uint8)
    size = leaf.dtype.itemsize
    unsigned = {1: jnp.uint8, 2: jnp.uint16}.get(size, jnp.uint32)
    return jax.lax.bitcast_convert_type(leaf, unsigned).astype(jnp.uint32)


def _mixed(x: jax.Array) -> jax.Array:
    """The finaliser of MurmurHash3, a bijection of uint32 (https://github.com/aappleby/smhasher, fmix32)."""
    x = x ^ (x >> 16)
    x = x * np.uint32(0x85EBCA6B)
    x = x ^ (x >> 13)
    x = x * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
