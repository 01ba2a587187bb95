"""The trainer's interface to user-defined models, common to all their forms."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax

from tpujob_trainer.values.errors import ConfigurationError

FIELD = "spec.trainer.model.custom"

Path = tuple[str, ...]
"""Path of a weight: names of modules or keys; list indices as text, as in checkpoints."""


Inputs = tuple[jax.Array, jax.Array, jax.Array]
"""Tokens, positions and segment ids, each int32 `[B, S]`; segment 0 is padding."""


class Parameter(NamedTuple):
    """The shape and the axes of a weight."""

    shape: tuple[int, ...]
    axes: tuple[str, ...] | None
    """Names of its dimensions, which determine how it is divided; None: the longest that the devices divide is."""


class Module(Protocol):
    """A model without its weights."""

    @property
    def parameters(self) -> Mapping[Path, Parameter]:
        """All weights."""

    @property
    def has_dropout(self) -> bool:
        """Whether training uses random numbers."""

    def init(self, seed: int) -> dict[Path, jax.Array]:
        """Fresh weights; can be traced."""

    def apply(self, weights: Mapping[Path, jax.Array], inputs: Inputs, dropout_key: jax.Array | None) -> Any:
        """The output for a batch: logits, or hidden states and the output matrix.

        Args:
            weights: of all parameters.
            inputs: of all rows.
            dropout_key: of this step; None: not in training, nothing is dropped.
        """


def parameter(
    path: Path, shape: Sequence[int], axes: Sequence[str | None] | None, reference: str, how: str
) -> Parameter:
    """The parameter with the names of its dimensions, if it has them.

    Args:
        path: of the weight.
        shape: of the weight.
        axes: as declared; None: there are none.
        reference: `module:name` of the model.
        how: the code that declares names, with {} for them.

    Raises:
        ConfigurationError: it names some of its dimensions only, or embed twice.
    """
    dims = len(shape)
    if axes is None:
        return Parameter(tuple(shape), ("vector",) * dims if dims <= 1 else None)
    if len(axes) != dims or list(axes).count("embed") > 1:
        example = ", ".join(['"embed"', '"mlp"', '"heads"', '"layers"'][:dims])
        raise ConfigurationError(
            f"{FIELD}: {'.'.join(path)} of {reference} names its dimensions {tuple(axes)}, and has {list(shape)}; "
            f"write {how.format(example)}, embed once at most"
        )
    return Parameter(tuple(shape), tuple(axis or "none" for axis in axes))
