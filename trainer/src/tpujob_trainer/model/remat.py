"""Which values of a layer the backward pass reuses, and which it recomputes.

Values of a layer have names (`RematName`): besides the layer's input, `remat: full` keeps those that a configuration
lists, in device memory or in the host's. Gathered weights are never kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from jax.ad_checkpoint import checkpoint_name

from tpujob_trainer.model.partitioning import save_all_but_gathered

if TYPE_CHECKING:
    from tpujob_trainer.model.shape import ModelShape, RematName

Policy = Callable[..., Any]


def _save_products(primitive: Any, *arguments: Any, **settings: Any) -> bool:
    """A policy of `jax.checkpoint`: keeps the results of products with matrices, including those of experts."""
    is_plain = jax.checkpoint_policies.dots_with_no_batch_dims_saveable(primitive, *arguments, **settings)
    return bool(is_plain) or str(primitive) == "ragged_dot_general"


_OTHERS: dict[str, Policy] = {"none": save_all_but_gathered, "dots": _save_products}


def policy(shape: ModelShape) -> Policy:
    """The policy of `jax.checkpoint` for a layer.

    On CPU, the host's memory is the device's: an offloaded value is simply kept.
    """
    if shape.remat in _OTHERS:
        return _OTHERS[shape.remat]
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=shape.remat_save,
        names_which_can_be_offloaded=shape.remat_offload,
        offload_src="device",
        offload_dst="pinned_host",
    )


def named[T](name: RematName, values: T) -> T:
    """The values, unchanged, under a name that a configuration can list."""
    found: T = jax.tree.map(lambda value: checkpoint_name(value, name), values)
    return found
