"""User-defined models that are a pair of functions, `init` and `apply`, over any tree of weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax

from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.custom.module import FIELD, Inputs, Parameter, Path, parameter


class Functions:
    """`init(key)` returns the weights, `apply(weights, tokens, positions, segment_ids)` the model's output."""

    def __init__(self, init: Callable[..., Any], apply: Callable[..., Any], axes: Any, reference: str) -> None:
        """Reads the shapes and axes of the weights, without computing them.

        Args:
            init: Returns the weights for a key: dictionaries, lists, named tuples.
            apply: Also gets `dropout_key`, if it has a parameter of this name; None: nothing is dropped.
            axes: The names of dimensions, nested as the weights; None: all weights are vectors or scalars.
            reference: `module:name`, for messages.

        Raises:
            ConfigurationError: a weight does not name its dimensions, or axes are nested differently.
        """
        self._init, self._apply = init, apply
        self.has_dropout = "dropout_key" in inspect.signature(apply).parameters
        leaves, self._structure = jax.tree.flatten_with_path(jax.eval_shape(init, jax.random.key(0)))
        self._paths = [_spelled(path) for path, _ in leaves]
        self.parameters: dict[Path, Parameter] = {
            path: parameter(path, leaf.shape, names, reference, "({}) at its place in axes")
            for path, (_, leaf), names in zip(self._paths, leaves, self._names(axes, reference), strict=True)
        }

    def init(self, seed: int) -> dict[Path, jax.Array]:
        """Fresh weights."""
        return dict(zip(self._paths, jax.tree.leaves(self._init(jax.random.key(seed))), strict=True))

    def apply(self, weights: Mapping[Path, jax.Array], inputs: Inputs, dropout_key: jax.Array | None) -> Any:
        """Calls the user's `apply` with the tree of weights."""
        tree = jax.tree.unflatten(self._structure, [weights[path] for path in self._paths])
        keywords = {"dropout_key": dropout_key} if self.has_dropout else {}
        return self._apply(tree, *inputs, **keywords)

    def _names(self, axes: Any, reference: str) -> list[Any]:
        if axes is None:
            return [None] * len(self._paths)
        try:
            return list(self._structure.flatten_up_to(axes))
        except ValueError as error:
            raise ConfigurationError(
                f"{FIELD}: axes of {reference} are not nested as its weights: {str(error).splitlines()[0]}"
            ) from error


def _spelled(path: tuple[Any, ...]) -> Path:
    return tuple(jax.tree_util.keystr((part,), simple=True) for part in path) or ("weights",)
