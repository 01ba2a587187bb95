"""The forms of user-defined models: a `flax.linen.Module`, an `nnx.Module`, or functions `init` and `apply`."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx, traverse_util

from tpujob_trainer.model.custom.module import FIELD, Inputs, Parameter, Path, parameter
from tpujob_trainer.values.errors import ConfigurationError

_INPUT = (1, 8)
"""Rows and positions of the input with which weights are initialized; they depend on neither."""


class LinenModule:
    """Its weights are the collection `params`; the argument `train` or `deterministic` of `__call__` sets the mode."""

    def __init__(self, module: linen.Module, reference: str) -> None:
        """Reads the shapes and axes of its variables, without computing them.

        Raises:
            ConfigurationError: it has other collections, or a weight names its dimensions wrongly.
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
            path: _linen_parameter(path, leaf, reference) for path, leaf in _flat(variables.get("params", {})).items()
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


def _linen_parameter(path: Path, leaf: Any, reference: str) -> Parameter:
    how = "nn.with_partitioning(init, ({})) in the place of its initializer"
    return parameter(path, _value(leaf).shape, getattr(leaf, "names", None), reference, how)


def _value(leaf: Any) -> Any:
    """The value without the box in which `nn.with_partitioning` keeps names."""
    return leaf.value if isinstance(leaf, linen.meta.AxisMetadata) else leaf


class NnxModule:
    """Its weights are its `nnx.Param`s. Its only other variables may be the random number streams of its dropout."""

    def __init__(self, make: Callable[[int], nnx.Module], abstract: nnx.Module, reference: str) -> None:
        """Reads the shapes and axes of its variables.

        Args:
            make: Creates the module from a seed.
            abstract: The module without values.
            reference: `module:name`, for messages.

        Raises:
            ConfigurationError: it has other variables, or a weight names its dimensions wrongly.
        """
        self._make = make
        self._training = _structure(abstract, is_training=True)
        self._plain = _structure(abstract, is_training=False)
        self._variables: dict[tuple[Any, ...], Any] = dict(nnx.to_flat_state(nnx.state(abstract)))
        self.has_dropout = any(isinstance(each, nnx.RngState) for each in self._variables.values())
        self.parameters: dict[Path, Parameter] = {}
        for path, variable in self._variables.items():
            if isinstance(variable, nnx.Param):
                self.parameters[_nnx_path(path)] = _nnx_parameter(_nnx_path(path), variable, reference)
            elif not isinstance(variable, nnx.RngState):
                raise ConfigurationError(
                    f"{FIELD}: {'.'.join(_nnx_path(path))} of {reference} is a {type(variable).__name__}; everything "
                    "that a module keeps must be an nnx.Param, for nothing else is trained or saved"
                )

    def init(self, seed: int) -> dict[Path, jax.Array]:
        """Fresh weights."""
        variables = nnx.to_flat_state(nnx.state(self._make(seed)))
        return {_nnx_path(path): each[...] for path, each in variables if isinstance(each, nnx.Param)}

    def apply(self, weights: Mapping[Path, jax.Array], inputs: Inputs, dropout_key: jax.Array | None) -> Any:
        """Calls the module, in training as after `module.train()`, otherwise as after `module.eval()`."""
        key = jax.random.key(0) if dropout_key is None else dropout_key
        filled = {}
        for number, (path, variable) in enumerate(self._variables.items()):
            if isinstance(variable, nnx.Param):
                value = weights[_nnx_path(path)]
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


def _nnx_parameter(path: Path, variable: Any, reference: str) -> Parameter:
    metadata = variable.get_metadata()
    axes = metadata.get("axes", metadata.get("out_sharding"))
    return parameter(path, variable.shape, axes, reference, "nnx.Param(value, axes=({}))")


def _nnx_path(path: tuple[Any, ...]) -> Path:
    return tuple(map(str, path))


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
            ConfigurationError: a weight names its dimensions wrongly, or axes are nested differently.
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
