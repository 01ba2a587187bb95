"""What several tests of the trainer share."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def compiled_once() -> Iterator[None]:
    """For tests that compile the same programs again and again: this process keeps them, as they are in memory.

    JAX's own cache would write and read them, after which they may hang: see `compile_cache.is_exact`.
    """
    from jax._src import cache_key, compiler

    programs: dict[str, Any] = {}
    compile_or_get_cached = compiler.compile_or_get_cached

    def compile_once(backend: Any, computation: Any, devices: Any, options: Any, *rest: Any) -> Any:
        key = cache_key.get(computation, devices, options, backend)
        if key not in programs:
            programs[key] = compile_or_get_cached(backend, computation, devices, options, *rest)
        return programs[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "compile_or_get_cached", compile_once)
        yield
