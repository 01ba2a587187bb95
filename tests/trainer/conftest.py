"""Eight CPU devices for every test of the trainer; jax reads this once, when its backend starts."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.quick_compiling import XLA_FLAGS

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["XLA_FLAGS"] = XLA_FLAGS


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For tests that compile the same programs again and again: this process keeps them."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    def keep(folder: Path | None) -> None:
        jax.config.update("jax_compilation_cache_dir", None if folder is None else str(folder))
        compilation_cache.reset_cache()  # it remembers whether there was one

    folder = tmp_path_factory.getbasetemp() / "programs"
    shortest = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    keep(folder)
    yield
    keep(None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", shortest)
