"""A run that needs more memory than its devices have, by the words of those who say so."""

from __future__ import annotations

import re

import jax

from tpujob_trainer.errors import ConfigurationError, TrainerError, brief

_EXHAUSTED = re.compile(
    r"RESOURCE_EXHAUSTED: (?:.{0,200}\b)?(?:out of memory|error allocating device buffer|error loading program)",
    re.IGNORECASE | re.DOTALL,
)
"""Of libtpu's compiler (openxla.org/xla/errors/error_1000), its runtime (error_0100, error_0101), CUDA and CPU.
Storage says RESOURCE_EXHAUSTED, too, of its quotas, and none of these words."""


def is_exhausted(error: BaseException) -> bool:
    """Whether a device, or the compiler for it, had not enough memory."""
    return isinstance(error, jax.errors.JaxRuntimeError) and bool(_EXHAUSTED.search(str(error)))


def ending(error: BaseException, *, has_fitted: bool) -> TrainerError:
    """What the run ends with: before its first step it would go the same way again, later it may not.

    Args:
        error: One of those that `is_exhausted` knows.
        has_fitted: Whether the run has taken steps, or restores what it saved after some.
    """
    kind = TrainerError if has_fitted else ConfigurationError
    return kind(
        "spec.trainer: the devices have not enough memory: lower batchSize or sequenceLength, raise "
        "gradientAccumulation, set model.remat: full, or take more chips; `tpujob check --compile` says what fits "
        f"({brief(error)})"
    )
