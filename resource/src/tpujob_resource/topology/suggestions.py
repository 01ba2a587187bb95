"""Messages about accelerator names: what a wrong name would mean, and which existing ones are close."""

import re
from math import prod

from tpujob_contract.spelling import nearest_name
from tpujob_resource.topology.tables import GENERATIONS, SMALL_3D, Generation, Shape

FORMS = (
    "a size such as v5e-256 or v4-8, a shape such as v6e:16x16 or v5p:4x4x8, or cpu:HOSTSxDEVICES; "
    f"generations: {', '.join(GENERATIONS)}"
)
_SPELLINGS = {
    **{generation.label: generation.name for generation in GENERATIONS.values()},
    **{alias: generation.name for generation in GENERATIONS.values() for alias in generation.aliases},
    **{machine.split("-")[0]: g.name for g in GENERATIONS.values() for machine in g.machines.values()},
    "v5": "v5p",
    "v5lite": "v5e",
    "v6": "v6e",
    "trillium": "v6e",
    "v7x": "tpu7x",
    "7x": "tpu7x",
    "v7": "tpu7x",
    "tpu7": "tpu7x",
    "ironwood": "tpu7x",
}
_UNSUPPORTED = {"v2": "has no GKE node pools"}
_GPU = re.compile(
    r"(nvidia|tesla|gpu|cuda|rtx|geforce|mi\d{3}x?|a10g?|a40|a100|h[128]00|g?b[123]00|l4|l40s?|t4|v100|p4|p100|k80)"
    r"(?![a-z0-9])"
)
"""Names of GPUs."""


def unknown_form(text: str) -> str:
    """The message for a text that is neither a size nor a shape."""
    lower = text.strip().lower()
    if _GPU.match(lower):
        return f'"{text}" is a GPU, and tpujob runs on TPUs and, to rehearse, on CPUs; allowed: {FORMS}'
    if lower != text:
        return f'"{text}": write it in lower case without spaces, "{lower}"'
    meant = _SPELLINGS.get(text) or next((g for g in GENERATIONS if text.startswith(g)), None)
    if meant is None:
        meant = next((name for spelling, name in _SPELLINGS.items() if text.startswith(f"{spelling}-")), None)
    hint = f"; for {GENERATIONS[meant].label} write {_examples(GENERATIONS[meant])}" if meant else ""
    return f'"{text}" is not an accelerator{hint}; allowed: {FORMS}'


def unknown_generation(text: str, prefix: str) -> str:
    """The message for a well-formed name of a generation that is not in the table."""
    if _GPU.match(prefix):
        return unknown_form(text)
    if prefix in _UNSUPPORTED:
        return f'"{text}": {prefix} {_UNSUPPORTED[prefix]} and is not supported; allowed: {FORMS}'
    near = _SPELLINGS.get(prefix) or nearest_name(prefix, GENERATIONS)
    hint = f' (perhaps "{near}{text[len(prefix) :]}" is meant)' if near else ""
    return f'"{text}": there is no TPU generation "{prefix}"{hint}; allowed: {FORMS}'


def no_such_size(generation: Generation, text: str, size: int) -> str:
    """The message for a size that does not exist: its chips, what was perhaps meant, the closest sizes."""
    cores, none = generation.cores_in_size, f"and no {generation.name} slice has that many"
    if size % cores:
        fact = f'"{text}" is half a chip too many ({counts(generation)})'
    elif cores > 1:
        fact = f'"{text}" would be {chips_of(size // cores)} ({counts(generation)}), {none}'
    else:
        fact = f'"{text}" would be {chips_of(size)}, {none}'
    if size * cores in generation.sizes:
        fact += f"; for {chips_of(size)} ask for {generation.name}-{size * cores}"
    return f"{fact}; nearest: {nearest(generation, size)}"


def no_such_shape(generation: Generation, text: str, shape: Shape) -> str:
    """The message for a shape that Google does not offer."""
    chips = prod(shape)
    name = generation.name
    if len(shape) != generation.dimensions:
        wanted = "AxB" if generation.dimensions == 2 else "AxBxC"
        fact = f'"{text}" has {len(shape)} dimensions, and {name} slices are {wanted} chips'
    elif generation.dimensions == 2 and tuple(sorted(shape)) in generation.shapes:
        return f'"{text}": write the smaller dimension first, "{name}:{_text(tuple(sorted(shape)))}"'
    elif _reordered(generation, shape):
        return f'"{text}": write it as "{name}:{_text(_reordered(generation, shape) or shape)}"'
    elif generation.max_cubes and chips > generation.max_cubes * 64:
        most = generation.max_cubes * 64
        fact = f'"{text}" would be {chips_of(chips)}, and the largest {name} slice has {most} chips'
    elif generation.max_cubes:
        small = ", ".join(_text(s) for s in generation.shapes if prod(s) < 64)
        fact = f'"{text}" is no {name} shape: {small}, or from 4x4x4 up every dimension a multiple of 4'
    else:
        return f'"{text}" is no {name} shape; shapes: {", ".join(_text(s) for s in generation.shapes)}'
    return f"{fact}; nearest: {nearest(generation, chips * generation.cores_in_size, as_shapes=True)}"


def cores_note(generation: Generation, text: str, shape: Shape) -> str:
    """The note for an existing size that counts TensorCores: its chips and hosts, which can be misread."""
    chips = prod(shape)
    hosts = chips // generation.chips_per_host(shape)
    size = chips * generation.cores_in_size
    note = f"{text} is {_amount(chips, hosts)} ({generation.name} names count cores)"
    if size * generation.cores_in_size in generation.sizes:
        note += f"; for {chips_of(size)} ask for {generation.name}-{size * generation.cores_in_size}"
    return note


def two_machines(text: str, generation: Generation, chips_per_host: int, *, is_asked_for: bool) -> str:
    """The note for 2x4, which exists on two machines."""
    if chips_per_host == 8:
        return (
            f"{text} is 8 chips on 1 host ({generation.machines[8]}); for 2 hosts of 4 chips "
            'add nodeSelector {"cloud.google.com/gke-accelerator-count": "4"}'
        )
    why = "as its nodeSelector asks" if is_asked_for else "as GKE joins only slices of several hosts"
    return f"{text} is 8 chips on 2 hosts ({generation.machines[4]}), {why}"


def counts(generation: Generation) -> str:
    """A statement that size names count cores, and how many a chip has."""
    return f"{generation.name} names count cores, {generation.cores_in_size} a chip"


def chips_of(chips: int) -> str:
    """`1 chip`, `8 chips`."""
    return f"{chips} chip" if chips == 1 else f"{chips} chips"


def nearest(generation: Generation, size: int, *, as_shapes: bool = False) -> str:
    """The slices just below and above a size that does not exist."""
    below = [n for n in generation.sizes if n < size]
    above = [n for n in generation.sizes if n >= size]
    names = []
    for n in [*below[-1:], *above[: 1 if below else 2]]:
        shape = generation.sizes[n]
        name = f"{generation.name}:{_text(shape)}" if as_shapes else f"{generation.name}-{n}"
        names.append(f"{name} ({_amount(prod(shape), prod(shape) // generation.chips_per_host(shape))})")
    return ", ".join(names)


def _amount(chips: int, hosts: int) -> str:
    return f"{chips_of(chips)} on {hosts} host{'s' if hosts > 1 else ''}"


def _reordered(generation: Generation, shape: Shape) -> Shape | None:
    """The shape that exists with the dimensions of a refused shape in another order; None: there is none."""
    for small in SMALL_3D:
        if sorted(small) == sorted(shape):
            return small
    ordered = tuple(sorted(shape))
    is_right = all(n % 4 == 0 and n for n in ordered) and prod(n // 4 for n in ordered) <= generation.max_cubes
    return ordered if is_right else None


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _examples(generation: Generation) -> str:
    size = list(generation.sizes)[3]
    return f"{generation.name}-{size} or {generation.name}:{_text(generation.sizes[size])}"
