"""User-defined models that are an `nnx.Module`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.custom.module import FIELD, Inputs, Parameter, Path, parameter


class NnxModule:
    """Its weights are its `nnx.Param`s. Its only other variables may be the random number streams of its dropout."""

    def __init__(self, make: Callable[[int], nnx.Module], abstract: nnx.Module, reference: str) -> None:
        """Reads the shapes and axes of its variables.

        Args:
            make: Creates the module from a seed.
            abstract: The module without values.
            reference: `module:name`, for messages.

        Raises:
            ConfigurationError: it has other variables, or a weight does not name its dimensions.
        """
        self._make = make
        self._training = _structure(abstract, is_training=True)
        self._plain = _structure(abstract, is_training=False)
        self._variables: dict[tuple[Any, ...], Any] = dict(nnx.to_flat_state(nnx.state(abstract)))
        self.has_dropout = any(isinstance(each, nnx.RngState) for each in self._variables.values())
        self.parameters: dict[Path, Parameter] = {}
        for path, variable in self._variables.items():
            if isinstance(variable, nnx.Param):
                self.parameters[_spelled(path)] = _parameter(_spelled(path), variable, reference)
            elif not isinstance(variable, nnx.RngState):
                raise ConfigurationError(
                    f"{FIELD}: {'.'.join(_spelled(path))} of {reference} is a {type(variable).__name__}; everything "
                    "that a module keeps must be an nnx.Param, for nothing else is trained or saved"
                )

    def init(self, seed: int) -> dict[Path, jax.Array]:
        """Fresh weights."""
        variables = nnx.to_flat_state(nnx.state(self._make(seed)))
        return {_spelled(path): each[...] for path, each in variables if isinstance(each, nnx.Param)}

    def apply(self, weights: Mapping[Path, jax.Array], inputs: Inputs, dropout_key: jax.Array | None) -> Any:
        """Calls the module, in training as after `module.train()`, otherwise as after `module.eval()`."""
        key = jax.random.key(0) if dropout_key is None else dropout_key
        filled = {}
        for number, (path, variable) in enumerate(self._variables.items()):
            if isinstance(variable, nnx.Param):
                value = weights[_spelled(path)]
            elif isinstance(variable, nnx.RngKey):
                value = jax.random.split(jax.random.fold_in(key, number), variable.shape)
            else:
                value = jnp.zeros(variable.shape, variable.dtype)
            filled[path] = variable.replace(value)
        structure = self._plain if dropout_key is None else self._training
        return nnx.merge(structure, nnx.from_flat_state(filled))(*inputs)


def _structure(abstract: nnx.Module, *, is_training: bool) -> Any:
    if is_training:
        abstract.train()
    else:
        abstract.eval()
    return nnx.split(abstract)[0]


def _parameter(path: Path, variable: Any, reference: str) -> Parameter:
    metadata = variable.get_metadata()
    axes = metadata.get("axes", metadata.get("out_sharding"))
    return parameter(path, variable.shape, axes, reference, "nnx.Param(value, axes=({}))")


def _spelled(path: tuple[Any, ...]) -> Path:
    return tuple(map(str, path))
