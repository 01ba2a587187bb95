"""Names of accelerators with something in common, for rules that compare names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tpujob_resource.topology.tables import GENERATIONS, Generation, Shape

SUB_SLICES, SUPER_SLICES = "v6e", "tpu7x"
"""The generations that can be cut out of a larger slice, and put together into one."""


def _names(is_wanted: Callable[[Generation, Shape], bool]) -> tuple[str, ...]:
    """Sizes and shapes, of those that are listed, in the order of the table."""
    found: dict[str, None] = {}
    for generation in GENERATIONS.values():
        for size, shape in generation.sizes.items():
            if is_wanted(generation, shape):
                found |= dict.fromkeys(f"{name}-{size}" for name in (generation.name, *generation.aliases))
        for shape in generation.shapes:
            if is_wanted(generation, shape):
                found[f"{generation.name}:{'x'.join(map(str, shape))}"] = None
    return tuple(found)


ONE_HOST = _names(lambda generation, shape: shape in generation.single_host)
"""Slices that one host can hold."""
TWO_MACHINES = _names(lambda generation, shape: generation.single_host.get(shape) == 8)
"""Those of 8 chips, which are two hosts of 4 where the job has several slices or asks for that machine."""
BELOW_A_CUBE = _names(lambda generation, shape: generation.name == SUPER_SLICES and any(n % 4 for n in shape))
"""Slices that no cubes of 4x4x4 chips make."""


def generations(is_wanted: Callable[[Generation], bool]) -> tuple[str, ...]:
    """Names of generations."""
    return tuple(generation.name for generation in GENERATIONS.values() if is_wanted(generation))


def of_generations(names: Iterable[str]) -> str:
    """A pattern for the accelerators of some generations, by any of their names."""
    prefixes = [prefix for name in names for prefix in (name, *GENERATIONS[name].aliases)]
    return f"^({'|'.join(prefixes)})[-:]"
