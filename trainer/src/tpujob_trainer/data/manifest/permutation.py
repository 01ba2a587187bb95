"""Units, cut from parts of files by arithmetic, and their seeded orders, which are computed and never stored.

The same on every machine and with every version of numpy: only 64-bit integer arithmetic and BLAKE2b, no random number
generator whose stream may change.
"""

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


def cut_units(
    file: np.ndarray,
    part: np.ndarray,
    count: np.ndarray,
    size: np.ndarray,
    *,
    unit_bytes: int,
    minimum: int,
    least: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Units (file, part, first element, elements, bytes) of these parts of files, in their order.

    No unit is larger than `unit_bytes`, and there are at least `minimum` units, as far as `least` elements in each unit
    allow it. Empty parts have none.

    Args:
        file: [parts] number of the file that holds it.
        part: [parts] its number within the file.
        count: [parts] its elements.
        size: [parts] decoded bytes of its column.
        unit_bytes: most bytes of a unit.
        minimum: least number of units.
        least: elements that a unit should have, even if there are fewer units then.
    """
    kept = count > 0
    file, part, count, size = file[kept], part[kept], count[kept], size[kept]
    most = np.maximum(1, count // least)
    pieces = np.clip(-(-size // unit_bytes), 1, most)
    if pieces.sum() < minimum and len(count):
        pieces = np.maximum(pieces, np.minimum(most, -(-count // _longest_unit(count, pieces, minimum))))
    which = np.repeat(np.arange(len(count)), pieces)
    piece = np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = count[which] * piece // pieces[which]
    end = count[which] * (piece + 1) // pieces[which]
    share = (size[which].astype(np.float64) * ((end - first) / count[which])).astype(np.int64)
    return (
        file[which].astype(np.int32),
        part[which].astype(np.int32),
        first.astype(np.int64),
        (end - first).astype(np.int64),
        share,
    )


def _longest_unit(count: np.ndarray, parts: np.ndarray, minimum: int) -> int:
    """The largest limit for the elements of a unit that gives at least `minimum` units; 1: none does."""
    low, high = 1, int(count.max())
    while low < high:
        middle = (low + high + 1) // 2
        if np.maximum(parts, -(-count // middle)).sum() >= minimum:
            low = middle
        else:
            high = middle - 1
    return low
