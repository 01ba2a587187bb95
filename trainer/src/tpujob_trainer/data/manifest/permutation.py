"""Seeded orders that are computed, never stored.

The same on every machine and with every version of numpy: only 64-bit integer arithmetic and BLAKE2b, no random number
generator whose stream may change.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np

_ROUNDS = 8
_WORD = (1 << 64) - 1


def key_of(*parts: int | str) -> int:
    """A 64-bit key that depends on each part and on their order."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Permutation:
    """A bijection of range(size), chosen by a key: `Permutation(10, seed, epoch)[3]` is one of 0…9.

    A Feistel network over the smallest square power of two that holds `size`, walked until the value is inside
    (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002): constant memory, about 2 steps on average.
    """

    def __init__(self, size: int, *key: int | str) -> None:
        if size < 1:
            raise ValueError(f"a permutation needs at least one element, not {size}")
        self._size = size
        self._half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
        self._keys = _round_keys(key)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self._size:
            raise IndexError(f"{index} is outside 0…{self._size - 1}")
        value = self._encrypt(index)
        while value >= self._size:
            value = self._encrypt(value)
        return value

    def take(self, indices: np.ndarray) -> np.ndarray:
        """The values at many indices at once, int64; the same as one by one."""
        with np.errstate(over="ignore"):
            values = self._encrypt_many(np.asarray(indices, dtype=np.uint64))
            while len(outside := np.flatnonzero(values >= self._size)):
                values[outside] = self._encrypt_many(values[outside])
        return values.astype(np.int64)

    def _encrypt_many(self, values: np.ndarray) -> np.ndarray:
        bits, mask = np.uint64(self._half_bits), np.uint64((1 << self._half_bits) - 1)
        left, right = values >> bits, values & mask
        for key in self._keys:
            left, right = right, left ^ (_mix_many(right + np.uint64(key)) & mask)
        return left << bits | right

    def _encrypt(self, value: int) -> int:
        bits = self._half_bits
        mask = (1 << bits) - 1
        left, right = value >> bits, value & mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right + key) & mask)
        return left << bits | right


def row_order(size: int, *key: int | str) -> np.ndarray:
    """The indices 0…size-1 in an order chosen by the key, int64 [size]."""
    with np.errstate(over="ignore"):
        word = np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key_of(*key))
        return np.argsort(_mix_many(word), kind="stable")


@functools.lru_cache(maxsize=256)
def _round_keys(key: tuple[int | str, ...]) -> tuple[int, ...]:
    return tuple(key_of(*key, "round", number) for number in range(_ROUNDS))


def _mix(word: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014)."""
    word &= _WORD
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _WORD
    return word ^ (word >> 31)


def _mix_many(word: np.ndarray) -> np.ndarray:
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
