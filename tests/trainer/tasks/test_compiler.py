"""What is compiled, and what is refused since it would not fit."""

import socket

import jax
import jax.numpy as jnp
import pytest

from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.tasks.compiler import Compiler, refuse_too_large_a_state
from tpujob_trainer.telemetry.report import Report
from tpujob_trainer.values.errors import ConfigurationError


@pytest.fixture
def compiler() -> Compiler:
    runtime = Runtime(
        process_id=0,
        num_processes=1,
        attempt_id="0.0-x",
        host=socket.gethostname(),
        coordination=kv_store.alone(),
    )
    return Compiler(runtime, Report())


def double(x: jax.Array) -> jax.Array:
    return 2 * x


def test_what_fits_is_compiled(compiler: Compiler) -> None:
    compiled = compiler.compile("doubling", jax.jit(double), jax.ShapeDtypeStruct((4,), jnp.float32))
    assert compiled(jnp.ones(4)).tolist() == [2, 2, 2, 2]


def test_more_than_the_host_has_is_refused_before_it_runs(compiler: Compiler) -> None:
    with pytest.raises(
        ConfigurationError, match=r"the doubling needs [\d,]+.\d GB of memory, and this host has"
    ) as caught:
        compiler.compile("doubling", jax.jit(double), jax.ShapeDtypeStruct((1 << 40,), jnp.float32))
    assert str(caught.value).startswith("spec.trainer.sequenceLength, spec.trainer.batchSize: ")


def test_a_state_larger_than_the_host_is_refused_before_it_is_made() -> None:
    whole = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    refuse_too_large_a_state({"w": jax.ShapeDtypeStruct((4, 4), jnp.float32, sharding=whole)})
    large = jax.ShapeDtypeStruct((1 << 20, 1 << 20), jnp.float32, sharding=whole)
    with pytest.raises(ConfigurationError, match=r"^spec\.trainer\.model: weights and optimizer need [\d,]+\.\d GB"):
        refuse_too_large_a_state({"w": large})
