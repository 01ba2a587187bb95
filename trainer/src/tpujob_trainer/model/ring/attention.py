"""The hops round the ring, forward and backward, and how their results are combined.

Each device has the queries of its positions. At every hop it computes attention to the keys of one earlier device, and
the results are combined by their sums of exponentials (Liu, Zaharia and Abbeel 2023, Ring Attention). The backward pass
goes round once more; the gradients of keys and values travel with them, in float32. Keys of the next hop are sent while
those of this one are used.

Arrays of a device: B rows, N query heads, K key heads, L positions, H head width.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from tpujob_trainer.model.partitioning import CONTEXT
from tpujob_trainer.model.remat import named
from tpujob_trainer.model.shape import RematName

ATTENTION: RematName = "attention"
"""What `model.rematSave` calls the results."""


class Inputs(NamedTuple):
    """What one device computes a part of the attention from."""

    query: jax.Array
    """`[B, N, L, H]`, scaled."""
    key: jax.Array
    """`[B, K, L, H]`, of this device or of one before it."""
    value: jax.Array
    """`[B, K, L, H]`"""
    query_segments: jax.Array
    """int32 `[B, L]`; a query sees keys of its own segment."""
    key_segments: jax.Array
    """int32 `[B, L]`"""


class Seen(NamedTuple):
    """Attention to some of the keys."""

    values: jax.Array
    """float32 `[B, N, L, H]`: the softmax over these keys times their values."""
    logsumexp: jax.Array
    """float32 `[B, N, L]`, of the scores."""


class Part(Protocol):
    """Attention of a device's queries to the keys of one device; hashable.

    Its `distance` is that of the first query behind the first key, in positions; None: every key is near enough.
    """

    def forward(self, distance: int | None, inputs: Inputs) -> Seen:
        """Attention to these keys alone."""

    def backward(
        self, distance: int | None, inputs: Inputs, seen: Seen, gradient: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Gradients of query, key and value, from what was seen of all keys and its gradient."""


class _Stretch(NamedTuple):
    """Hops of one distance."""

    distance: int | None
    first: int
    hops: int


@dataclass(frozen=True)
class Ring:
    """Which devices' keys each device sees, and how it computes with them."""

    devices: int
    """Of the axis."""
    length: int
    """Positions of a device."""
    window: int | None
    """Keys that a query sees, its own included; None: all before it."""
    part: Part

    @property
    def farthest(self) -> int:
        """Hops to the last keys that any query sees."""
        if self.window is None:
            return self.devices - 1
        return min(self.devices - 1, (self.window + self.length - 2) // self.length)

    def stretches(self) -> Iterator[_Stretch]:
        """All hops: to itself, to devices that are seen whole, and to those at the end of the window."""
        yield _Stretch(0, 0, 1)
        whole = self.farthest if self.window is None else min(self.farthest, self.window // self.length - 1)
        if whole > 0:
            yield _Stretch(None, 1, whole)
        for hop in range(max(whole, 0) + 1, self.farthest + 1):
            yield _Stretch(hop * self.length, hop, 1)


def ring_attention(ring: Ring, query: jax.Array, key: jax.Array, value: jax.Array, segments: jax.Array) -> jax.Array:
    """Softmax of the scores times the values, `[B, L, N, H]`; inside of a `shard_map` over `context`.

    Args:
        ring: the devices, and how each computes.
        query: `[B, L, N, H]`, scaled.
        key: `[B, L, K, H]`.
        value: `[B, L, K, H]`.
        segments: int32 `[B, L]`; a query sees keys of its own segment, up to its own position.
    """
    heads_first = [x.swapaxes(1, 2) for x in (query, key, value)]
    return _attention(ring, *heads_first, segments).swapaxes(1, 2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(ring: Ring, query: jax.Array, key: jax.Array, value: jax.Array, segments: jax.Array) -> jax.Array:
    return _forward(ring, query, key, value, segments)[0]


def _forward(
    ring: Ring, query: jax.Array, key: jax.Array, value: jax.Array, segments: jax.Array
) -> tuple[jax.Array, Any]:
    inputs = Inputs(query, key, value, segments, segments)

    def hop(stretch: _Stretch, number: Any, inputs: Inputs, seen: Seen) -> Seen:
        def see(_: Any) -> Seen:
            return _joined(seen, ring.part.forward(stretch.distance, inputs))

        return _where_reached(number, see, seen)

    nothing = Seen(jnp.zeros(query.shape, jnp.float32), jnp.full(query.shape[:-1], -jnp.inf, jnp.float32))
    found = _round(ring, hop, inputs, nothing)
    kept = named(ATTENTION, Seen(found.values.astype(query.dtype), found.logsumexp))
    return kept.values, (query, key, value, segments, kept)


def _backward(ring: Ring, kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    query, key, value, segments, seen = kept
    inputs = Inputs(query, key, value, segments, segments)

    def hop(stretch: _Stretch, number: Any, inputs: Inputs, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        # The sums of these keys were made by the device before, beside whose next hop they come here.
        arrived = (sums[0], *_shifted(ring, sums[1:])) if stretch.first else sums

        def add(_: Any) -> tuple[jax.Array, ...]:
            found = ring.part.backward(stretch.distance, inputs, seen, gradient)
            return tuple(a + b.astype(jnp.float32) for a, b in zip(arrived, found, strict=True))

        return _where_reached(number, add, arrived)

    sums = _round(ring, hop, inputs, tuple(jnp.zeros(x.shape, jnp.float32) for x in (query, key, value)))
    home = _shifted(ring, sums[1:], by=-ring.farthest)
    return (*(x.astype(like.dtype) for x, like in zip((sums[0], *home), kept, strict=False)), None)


_attention.defvjp(_forward, _backward)


def _round[T](ring: Ring, hop: Callable[[_Stretch, Any, Inputs, T], T], inputs: Inputs, carried: T) -> T:
    """What `hop` makes of `carried` over all hops; keys are sent on while those that are here are used."""

    def one(stretch: _Stretch, number: Any, carry: tuple[Inputs, T], *, travels: bool = True) -> tuple[Inputs, T]:
        inputs, carried = carry
        onward = inputs
        if travels:
            key, value, segments = _shifted(ring, (inputs.key, inputs.value, inputs.key_segments))
            onward = inputs._replace(key=key, value=value, key_segments=segments)
        return onward, hop(stretch, number, inputs, carried)

    carry = (inputs, carried)
    for stretch in ring.stretches():
        end = stretch.first + stretch.hops
        is_last = end == ring.farthest + 1
        travelling = end - is_last
        if travelling > stretch.first:
            carry = jax.lax.fori_loop(stretch.first, travelling, functools.partial(one, stretch), carry)
        if is_last:
            carry = one(stretch, end - 1, carry, travels=False)
    return carry[1]


def _where_reached[T](hops: Any, compute: Callable[[None], T], otherwise: T) -> T:
    """What is computed, on devices that have one so many places before them.

    On the others, the keys that arrive are of later positions, which no query of theirs sees.
    """
    found: T = jax.lax.cond(jax.lax.axis_index(CONTEXT) >= hops, compute, lambda _: otherwise, None)
    return found


def _shifted[T](ring: Ring, arrays: T, *, by: int = 1) -> T:
    """The arrays of the device `by` places before this one."""
    to = [(index, (index + by) % ring.devices) for index in range(ring.devices)]
    moved: T = jax.tree.map(lambda x: jax.lax.ppermute(x, CONTEXT, to), arrays)
    return moved


def _joined(one: Seen, other: Seen) -> Seen:
    total = jnp.logaddexp(one.logsumexp, other.logsumexp)
    parts = [jnp.exp(each.logsumexp - total)[..., None] * each.values for each in (one, other)]
    return Seen(parts[0] + parts[1], total)
