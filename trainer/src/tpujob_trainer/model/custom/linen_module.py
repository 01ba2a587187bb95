"""User-defined models that are a `flax.linen.Module`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, traverse_util

from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.custom.module import FIELD, Inputs, Parameter, Path, parameter

_INPUT = (1, 8)
"""Rows and positions of the input with which weights are initialized; they depend on neither."""


class LinenModule:
    """Its weights are the collection `params`; the argument `train` or `deterministic` of `__call__` sets the mode."""

    def __init__(self, module: linen.Module, reference: str) -> None:
        """Reads the shapes and axes of its variables, without computing them.

        Raises:
            ConfigurationError: it has other collections, or a weight does not name its dimensions.
        """
        self._module = module
        accepted = inspect.signature(type(module).__call__).parameters
        self._mode = next((name for name in ("train", "deterministic") if name in accepted), None)
        self.has_dropout = self._mode is not None
        variables = jax.eval_shape(lambda: self._variables(0))
        if others := sorted(variables.keys() - {"params"}):
            raise ConfigurationError(
                f"{FIELD}: {reference} keeps {', '.join(others)} beside params; everything that a module keeps must be "
                "in params, for nothing else is trained or saved"
            )
        self.parameters = {
            path: _parameter(path, leaf, reference) for path, leaf in _flat(variables.get("params", {})).items()
        }

    def init(self, seed: int) -> dict[Path, jax.Array]:
        """Fresh weights."""
        return {path: _value(leaf) for path, leaf in _flat(self._variables(seed)["params"]).items()}

    def apply(self, weights: Mapping[Path, jax.Array], inputs: Inputs, dropout_key: jax.Array | None) -> Any:
        """Calls the module, in training with `dropout` as the only stream of random numbers."""
        rngs = None if dropout_key is None else {"dropout": dropout_key}
        variables = {"params": traverse_util.unflatten_dict(dict(weights))}
        keywords = self._keywords(is_training=rngs is not None)
        return self._module.apply(variables, *inputs, **keywords, rngs=rngs)

    def _variables(self, seed: int) -> Any:
        zeros = jnp.zeros(_INPUT, jnp.int32)
        return self._module.init(jax.random.key(seed), zeros, zeros, zeros, **self._keywords(is_training=False))

    def _keywords(self, *, is_training: bool) -> dict[str, bool]:
        if self._mode is None:
            return {}
        return {self._mode: is_training if self._mode == "train" else not is_training}


def _flat(parameters: Any) -> dict[Path, Any]:
    flat: dict[Path, Any] = traverse_util.flatten_dict(parameters)
    return flat


def _parameter(path: Path, leaf: Any, reference: str) -> Parameter:
    how = "nn.with_partitioning(init, ({})) in the place of its initializer"
    return parameter(path, _value(leaf).shape, getattr(leaf, "names", None), reference, how)


def _value(leaf: Any) -> Any:
    """The value without the box in which `nn.with_partitioning` keeps names."""
    return leaf.value if isinstance(leaf, linen.meta.AxisMetadata) else leaf
