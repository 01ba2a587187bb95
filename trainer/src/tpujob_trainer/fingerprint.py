"""Fingerprints of arrays: exact, computed where the arrays are, the same for every sharding and number of processes.

Two sums modulo 2³² for each leaf. Each term mixes a word of the leaf's bits with a hash of its position, so that two
words in each other's place, one flipped bit or a zero of the other sign change both sums (but for one case in 2⁶⁴).
Integer addition neither rounds nor depends on an order: devices add their parts, and one all-reduce joins them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ALGORITHM = "tpujob/1"
"""Kept with the fingerprints, since those of another algorithm say nothing."""
GOLDEN = 0x9E3779B1
FIRST = 0x27D4EB2F
SECOND = 0x85EBCA77
"""Odd constants of xxHash32 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md)."""


def leaf_names(tree: Any) -> list[str]:
    """The path of every leaf, as in "weights/layers/0/q", in the order of the tree's leaves."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return ["/".join(_part(key) for key in path) for path, _ in paths]


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """Of one tree."""

    by_leaf: dict[str, str]
    """Path of the leaf → sixteen hexadecimal digits."""
    differing_copies: list[str]
    """Leaves of which devices of this process hold copies that are not the same."""


class Fingerprinter:
    """Computes fingerprints. All processes call it with the same global arrays; compiled once for each tree."""

    def __init__(self) -> None:
        self._jitted = jax.jit(_sums)

    def __call__(self, tree: Any) -> Fingerprints:
        """The fingerprints over all processes. Waits for the devices."""
        sums = self._jitted(tree)
        names = leaf_names(tree)
        copies = [np.asarray(shard.data) for shard in sums.addressable_shards]
        unequal = np.zeros(len(names), bool)
        for copy in copies[1:]:
            unequal |= (copy != copies[0]).any(axis=1)
        by_leaf = {name: f"{first:08x}{second:08x}" for name, (first, second) in zip(names, copies[0], strict=True)}
        return Fingerprints(by_leaf, [names[i] for i in np.flatnonzero(unequal)])


def unequal(stored: dict[str, str], found: dict[str, str]) -> list[str]:
    """The leaves whose fingerprints are not the same in both."""
    return sorted(name for name in stored.keys() | found.keys() if stored.get(name) != found.get(name))


def _sums(tree: Any) -> jax.Array:
    """uint32 [leaves, 2], the same on all devices."""
    sums = [_leaf(leaf) for leaf in jax.tree.leaves(tree)]
    return jnp.stack(sums)


def _leaf(leaf: jax.Array) -> jax.Array:
    words = _words(leaf)
    first, second = (_position(words.shape, seed) for seed in (FIRST, SECOND))
    sums = [_mixed(words ^ first), _mixed(words * np.uint32(SECOND) + second)]
    return jnp.stack([jnp.sum(terms, dtype=jnp.uint32) for terms in sums])


def _position(shape: tuple[int, ...], seed: int) -> jax.Array:
    """A hash of each index, uint32, as wide as the shape where it has to be: one for each axis, added up."""
    found = jnp.zeros((1,) * len(shape), jnp.uint32)
    for axis, length in enumerate(shape):
        index = jax.lax.iota(jnp.uint32, length) * np.uint32(GOLDEN) + np.uint32(seed + 2 * axis)
        # Kept from being computed anew for each element.
        hashed = jax.lax.optimization_barrier(_mixed(index))
        found = found + hashed.reshape([length if at == axis else 1 for at in range(len(shape))])
    return found


def _words(leaf: jax.Array) -> jax.Array:
    """The bits of a leaf as uint32; 8-byte values become two words along a new last axis."""
    leaf = jnp.asarray(leaf)
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


def _part(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
