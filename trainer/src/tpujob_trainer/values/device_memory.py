"""Recognizes errors about too little device memory by their messages, and makes the error that ends the run."""

import re

import jax

from tpujob_trainer.values.errors import ConfigurationError, TrainerError, brief

_EXHAUSTED = re.compile(
    r"RESOURCE_EXHAUSTED: (?:.{0,200}\b)?(?:out of memory|error allocating device buffer|error loading program)",
    re.IGNORECASE | re.DOTALL,
)
"""Messages of libtpu's compiler (openxla.org/xla/errors/error_1000), its runtime (error_0100, error_0101), CUDA and
CPU. Storage reports RESOURCE_EXHAUSTED, too, for its quotas, but with none of these words."""


def is_exhausted(error: BaseException) -> bool:
    """Whether a device did not have enough memory, as its runtime or compiler reports."""
    return isinstance(error, jax.errors.JaxRuntimeError) and bool(_EXHAUSTED.search(str(error)))


def ending(error: BaseException, *, has_fitted: bool) -> TrainerError:
    """The error that ends the run: before the first step, a retry would fail the same way; later, it may not.

    Args:
        error: An error for which `is_exhausted` is true.
        has_fitted: Whether the run has taken steps, or restores a checkpoint that was saved after some.
    """
    kind = TrainerError if has_fitted else ConfigurationError
    return kind(
        "spec.trainer: the devices have not enough memory: lower batchSize or sequenceLength, raise "
        "gradientAccumulation, set model.remat: full, or take more chips; `tpujob check --compile` says what fits "
        f"({brief(error)})"
    )
