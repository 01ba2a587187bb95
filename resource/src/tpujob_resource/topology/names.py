"""Groups of accelerator names, for rules that compare names."""

from collections.abc import Callable, Iterable
from math import prod

from tpujob_resource.topology.tables import GENERATIONS, Generation, Shape

SUB_SLICES, DYNAMIC_SLICES = "v6e", "tpu7x"
"""The generations whose slices can be parts of a larger slice, and are formed when a job starts."""


def _names(is_wanted: Callable[[Generation, Shape], bool]) -> tuple[str, ...]:
    """The names, as sizes and as shapes, of listed shapes that match, in the order of the table."""
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
"""Slices that fit on one host."""
TWO_MACHINES = _names(lambda generation, shape: generation.single_host.get(shape) == 8)
"""Those of 8 chips, which have two hosts of 4 if the job has several slices or selects that machine."""
ONE_CHIP = _names(lambda generation, shape: generation.name == DYNAMIC_SLICES and prod(shape) == 1)
"""Slices that have machines of their own, and are no part of a cube of 4x4x4 chips."""


def generations(is_wanted: Callable[[Generation], bool]) -> tuple[str, ...]:
    """The names of the generations that match."""
    return tuple(generation.name for generation in GENERATIONS.values() if is_wanted(generation))


def of_generations(names: Iterable[str]) -> str:
    """A pattern that matches the accelerators of these generations, including aliases."""
    prefixes = [prefix for name in names for prefix in (name, *GENERATIONS[name].aliases)]
    return f"^({'|'.join(prefixes)})[-:]"
