"""How arrays are divided over the mesh.

- Rows of a batch are divided over `slice`, `data`, `fsdp` and `expert`, the positions of a row over `context`.
- Each matrix has its `embed` dimension divided over `fsdp`, `expert` and `context` together; heads, mlp and experts
  also over their own axes. Vectors are whole on each device.
- A layer's matrices are gathered when the layer is computed, in the compute dtype; their gradients are scattered at the
  same point (Zhao and others 2023, PyTorch FSDP).
- On chips whose compiler makes rings of products (`Rings`), some matrices stay divided: their parts are sent from
  device to device while each device multiplies by those that it has. Those of a feed-forward block then have `mlp`
  divided instead of `embed`.

Names of weights' axes: layers, vocab, embed, heads, kv_heads, head_dim, mlp, experts, one, pair, rank. A matrix without
`embed` has `rank` divided instead.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tpujob_trainer.model.axes import (
    AXES,
    CONTEXT,
    DATA,
    EXPERT,
    FSDP,
    NO_RINGS,
    REPLICA_AXES,
    ROW_AXES,
    SLICE,
    TENSOR,
    WEIGHT_AXES,
    Rings,
)
from tpujob_trainer.model.chips import SCATTERED_AT_ONCE

_FAR, _LINE = "far", "line"
"""Parts of `fsdp`: all sides of a slice except the last, and the last."""

ROWS = PartitionSpec(ROW_AXES)
"""Rows of a batch. The other dimensions are not divided."""

POSITIONS = PartitionSpec(ROW_AXES, CONTEXT)
"""Rows and their positions, as in the layers."""

REPLICATED = PartitionSpec()

_OWN_AXES = {"heads": TENSOR, "kv_heads": TENSOR, "mlp": TENSOR, "experts": EXPERT}


def weight_spec(axes: tuple[str, ...], rings: Rings = NO_RINGS) -> PartitionSpec:
    """How a weight is divided when stored, from the names of its dimensions."""
    return _spec(axes, rings, is_gathered=False)


def gathered_spec(axes: tuple[str, ...], rings: Rings = NO_RINGS) -> PartitionSpec:
    """How it is divided when a layer uses it: over the axes of its own dimensions only, or as stored."""
    is_of_ring = (rings.mlp and "mlp" in axes) or (rings.attention and {*axes} & {"heads", "kv_heads"})
    return _spec(axes, rings, is_gathered=not is_of_ring)


def _spec(axes: tuple[str, ...], rings: Rings, *, is_gathered: bool) -> PartitionSpec:
    divided = "embed" if "embed" in axes else "rank"
    if divided not in axes or len([axis for axis in axes if axis != "layers"]) == 1:
        return REPLICATED
    if rings.mlp and "mlp" in axes:
        return PartitionSpec(*(WEIGHT_AXES if axis == "mlp" and not is_gathered else None for axis in axes))
    own = [_OWN_AXES.get(axis) for axis in axes]
    rest = tuple(axis for axis in WEIGHT_AXES if axis not in own)
    return PartitionSpec(
        *(rest if axis == divided and not is_gathered else mine for axis, mine in zip(axes, own, strict=True))
    )


def of_each_replica(function: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """Returns the function mapped over the replicas of the weights; specifications name only `REPLICA_AXES`.

    In it, the model's functions have a mesh without these axes: their sums are those of one replica.
    """
    return jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names={*REPLICA_AXES}, check_vma=False
    )


def summed_axes() -> tuple[str, ...]:
    """The `REPLICA_AXES` that the caller sums over: none in `of_each_replica`. Not for callers in `of_each_device`."""
    return tuple(axis for axis in REPLICA_AXES if axis not in _hidden_axes())


def of_each_device(function: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """Returns the function mapped over devices, each of which has its parts of the arguments."""
    hidden = _hidden_axes()
    if not hidden:
        return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    ins, outs = jax.tree.map(lambda spec: _without(spec, hidden), (in_specs, out_specs), is_leaf=_is_spec)
    return jax.shard_map(function, in_specs=ins, out_specs=outs, axis_names={*AXES} - hidden, check_vma=False)


def lying(mesh: Mesh, spec: PartitionSpec) -> NamedSharding:
    """The sharding of an array; in `of_each_replica`, over the devices of the replica."""
    hidden = _hidden_axes()
    if not hidden:
        return NamedSharding(mesh, spec)
    return NamedSharding(jax.sharding.get_abstract_mesh(), _without(spec, hidden))


def _hidden_axes() -> frozenset[str]:
    return frozenset(jax.sharding.get_abstract_mesh().manual_axes)


def _without(spec: PartitionSpec, hidden: frozenset[str]) -> PartitionSpec:
    def kept(axes: Any) -> Any:
        named = axes if isinstance(axes, tuple) else (axes,)
        return tuple(axis for axis in named if axis is not None and axis not in hidden) or None

    return PartitionSpec(*map(kept, spec))


def _is_spec(node: Any) -> bool:
    return isinstance(node, PartitionSpec)


def gather(weight: jax.Array, mesh: Mesh, kept: PartitionSpec, seen: PartitionSpec) -> jax.Array:
    """The weight as a layer uses it; its gradient is divided as the stored weight.

    Without the latter, the sum of a gradient over devices would be whole on each of them.
    """
    return _gather(weight, travel(mesh, kept, seen))


class Travel(NamedTuple):
    """The shardings of a weight, stored and in a layer, and of its gradient on the way back."""

    kept: NamedSharding
    seen: NamedSharding
    by_side: NamedSharding | None
    """Intermediate sharding of the gradient; None: it is scattered at once."""
    makes_rings: bool = False
    """Whether a product that does not sum over the divided dimension uses the parts instead of a gathered weight."""

    @property
    def divided(self) -> int:
        """The dimension along which a weight is gathered."""
        return next(number for number, axes in enumerate(self.kept.spec) if axes is not None and FSDP in axes)

    def there(self, weight: jax.Array) -> jax.Array:
        """The weight, or an array made of its parts, as a layer uses it."""
        held = jax.lax.with_sharding_constraint(weight, self.kept)
        seen: jax.Array = jax.lax.with_sharding_constraint(held, self.seen)
        return seen

    def back(self, gradient: jax.Array) -> jax.Array:
        """The gradient, divided as the stored weight."""
        if self.by_side is None:
            scattered: jax.Array = jax.lax.with_sharding_constraint(gradient, self.kept)
            return scattered
        # As the last dimension, a part narrower than 128 lanes would be padded to them between slices, and the second
        # scatter would be compiled as a sum.
        at = self.divided
        turned = jnp.moveaxis(gradient, at, 0)
        for place in (self.by_side, self.kept):
            turned = jax.lax.with_sharding_constraint(turned, _with_first(place, at))
        return jnp.moveaxis(turned, 0, at)


def travel(mesh: Mesh, kept: PartitionSpec, seen: PartitionSpec) -> Travel:
    """The shardings of a weight by these specifications; in `of_each_replica`, over the devices of the replica."""
    by_side = None if _hidden_axes() else scattered_by_side(mesh, kept)
    return Travel(lying(mesh, kept), lying(mesh, seen), by_side)


def scattered_by_side(mesh: Mesh, kept: PartitionSpec) -> NamedSharding | None:
    """Intermediate sharding of a gradient, over all sides of a slice except the last; None: it is not needed.

    libtpu scatters over one side of a large slice at a time. To scatter over all at once, it computes the whole sum,
    for which it sends twice the bytes.
    """
    line, sizes = _line(mesh), dict(mesh.shape)
    if line == 1:
        return None
    names = tuple(axis for axis in AXES if axis not in WEIGHT_AXES)
    devices = mesh.devices.reshape(sizes[SLICE], sizes[DATA], sizes[FSDP] // line, line, sizes[TENSOR])
    split = Mesh(devices, (SLICE, DATA, _FAR, _LINE, TENSOR), axis_types=(AxisType.Auto,) * 5)
    divided = (axes if isinstance(axes, tuple) else (axes,) for axes in kept)
    spec = (tuple(_FAR if axis == FSDP else axis for axis in axes if axis in (*names, FSDP)) for axes in divided)
    return NamedSharding(split, PartitionSpec(*(axes or None for axes in spec)))


def _line(mesh: Mesh) -> int:
    """The number of consecutive `fsdp` devices along a side of a slice; 1 if gradients are scattered at once."""
    if any(mesh.shape[axis] > 1 for axis in WEIGHT_AXES if axis != FSDP) or mesh.shape[FSDP] < SCATTERED_AT_ONCE:
        return 1
    places = [tuple(getattr(device, "coords", ())) for device in mesh.devices[0, 0, :, 0, 0, 0]]
    return line_length(places)


def line_length(places: Sequence[tuple[int, ...]]) -> int:
    """How many of these chips, from the first on, are along one side; 1 if that does not divide their number.

    Args:
        places: coordinates of each chip in the slice; if they are empty or not unique, the result is 1.
    """
    if len({*places}) < len(places):
        return 1
    ways = [{at for at, size in enumerate(place) if size != places[0][at]} for place in places]
    line = next((number for number, way in enumerate(ways) if way - ways[1]), len(ways))
    return line if len(places) % line == 0 else 1


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _gather(weight: jax.Array, way: Travel) -> jax.Array:
    return way.there(weight)


def _gather_forward(weight: jax.Array, way: Travel) -> tuple[jax.Array, None]:
    return _gather(weight, way), None


def _gather_backward(way: Travel, _: None, gradient: jax.Array) -> tuple[jax.Array]:
    return (way.back(gradient),)


def _with_first(place: NamedSharding, at: int) -> NamedSharding:
    """The sharding of an array whose dimension `at` has become the first."""
    spec = (*place.spec,)
    return NamedSharding(place.mesh, PartitionSpec(spec[at], *spec[:at], *spec[at + 1 :]))


_gather.defvjp(_gather_forward, _gather_backward)


def is_exchange(primitive: Any, **settings: Any) -> bool:
    """Whether an operation changes the sharding of an array: its result is never kept for the backward pass."""
    if str(primitive) == "custom_vjp_call":  # such as `gather`
        return all(is_exchange(each.primitive, **each.params) for each in settings["call_jaxpr"].eqns)
    return str(primitive) in {"sharding_constraint", "reshard", "all_gather"}


def save_all_but_gathered(primitive: Any, *_: Any, **settings: Any) -> bool:
    """A policy of `jax.checkpoint`: keeps everything except weights gathered from other devices."""
    return not is_exchange(primitive, **settings)
