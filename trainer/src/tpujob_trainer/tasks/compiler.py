"""Compiles functions so that no process waits in a collective for another one that still compiles."""

import logging
import math
import time
from typing import Any

import jax

from tpujob_trainer.config.schema import BLOCK
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.telemetry.process import host_memory_bytes
from tpujob_trainer.telemetry.report import Report
from tpujob_trainer.train.compile.program import needed_bytes
from tpujob_trainer.values.errors import ConfigurationError

logger = logging.getLogger(__name__)

LIMIT_SECONDS = 1800.0
"""Limit for the slowest process to compile."""


class Compiler:
    """Compiles the functions of a run; all processes must make the same calls."""

    def __init__(self, runtime: Runtime, report: Report) -> None:
        """`report` gets the phase."""
        self._runtime = runtime
        self._report = report

    def compile(self, name: str, jitted: Any, *abstract: Any) -> Any:
        """The compiled function; returns once all processes have it.

        Otherwise the fastest process would wait for the others in a collective, which has its own limits (30 s with
        gloo).
        """
        self._report.enter("compiling")
        started = time.monotonic()
        try:
            compiled = jitted.lower(*abstract).compile()
        except jax.errors.JaxRuntimeError as error:
            needed = needed_bytes(str(error))
            if needed is None:
                raise
            raise _too_large(name, needed, "of a device's memory, more than there is") from error
        _check_host_memory(name, compiled)
        if self._runtime.is_lead:
            logger.info("Compiled the %s in %.1f s", name, time.monotonic() - started)
        self._runtime.coordination.barrier(f"compiled/{name}", limit_seconds=LIMIT_SECONDS)
        return compiled


def refuse_too_large_a_state(state: Any) -> None:
    """Checks that weights and optimizer fit into the memory of this host, if devices are CPUs.

    Creating them would take memory that other programs of the machine use, before the kernel ends the process.

    Args:
        state: A pytree of arrays or their shapes, with shardings.

    Raises:
        ConfigurationError: they do not fit.
    """
    if jax.default_backend() != "cpu":
        return
    of_device = sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)
    )
    needed = of_device * jax.local_device_count()
    if needed > host_memory_bytes():
        raise ConfigurationError(
            f"{BLOCK}.model: weights and optimizer need {needed / 1e9:,.1f} GB on each host, and this one has "
            f"{host_memory_bytes() / 1e9:,.1f} GB; take a smaller model, such as {{preset: tiny}}, or more hosts"
        )


def _check_host_memory(name: str, compiled: Any) -> None:
    """Checks the memory of this host if devices are CPUs: the kernel would end the process later.

    Raises:
        ConfigurationError: it is too small; every other attempt would end the same way.
    """
    if jax.default_backend() != "cpu" or (found := compiled.memory_analysis()) is None:
        return
    of_device = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    needed = (of_device + found.temp_size_in_bytes) * jax.local_device_count()
    if needed > host_memory_bytes():
        raise _too_large(name, needed, f"of memory, and this host has {host_memory_bytes() / 1e9:,.1f} GB")


def _too_large(name: str, needed: int, than: str) -> ConfigurationError:
    return ConfigurationError(
        f"{BLOCK}.sequenceLength, {BLOCK}.batchSize: the {name} needs {needed / 1e9:,.1f} GB {than}; shorten the rows, "
        "use fewer of them, raise gradientAccumulation, or use more devices"
    )
