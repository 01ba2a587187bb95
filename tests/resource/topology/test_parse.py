import itertools
from math import prod

import pytest

from tpujob_resource.topology.errors import InvalidField
from tpujob_resource.topology.parse import (
    COUNT_LABEL,
    MAX_CPU_DEVICES,
    MAX_CPU_HOSTS,
    Accelerator,
    parse_accelerator,
)
from tpujob_resource.topology.tables import GENERATIONS

# name: topology, chips, hosts, chips per host, machine type
SLICES = {
    "v4-8": ("2x2x1", 4, 1, 4, "ct4p-hightpu-4t"),
    "v4-16": ("2x2x2", 8, 2, 4, "ct4p-hightpu-4t"),
    "v4-32": ("2x2x4", 16, 4, 4, "ct4p-hightpu-4t"),
    "v4-64": ("2x4x4", 32, 8, 4, "ct4p-hightpu-4t"),
    "v4-128": ("4x4x4", 64, 16, 4, "ct4p-hightpu-4t"),
    "v4-512": ("4x8x8", 256, 64, 4, "ct4p-hightpu-4t"),
    "v4-2048": ("8x8x16", 1024, 256, 4, "ct4p-hightpu-4t"),
    "v4-4096": ("8x16x16", 2048, 512, 4, "ct4p-hightpu-4t"),
    "v4:4x4x16": ("4x4x16", 256, 64, 4, "ct4p-hightpu-4t"),
    "v4:4x16x4": ("4x16x4", 256, 64, 4, "ct4p-hightpu-4t"),
    "v5e-1": ("1x1", 1, 1, 1, "ct5lp-hightpu-1t"),
    "v5e-4": ("2x2", 4, 1, 4, "ct5lp-hightpu-4t"),
    "v5e-8": ("2x4", 8, 1, 8, "ct5lp-hightpu-8t"),
    "v5e-16": ("4x4", 16, 4, 4, "ct5lp-hightpu-4t"),
    "v5litepod-16": ("4x4", 16, 4, 4, "ct5lp-hightpu-4t"),
    "v5e-32": ("4x8", 32, 8, 4, "ct5lp-hightpu-4t"),
    "v5e-64": ("8x8", 64, 16, 4, "ct5lp-hightpu-4t"),
    "v5e-128": ("8x16", 128, 32, 4, "ct5lp-hightpu-4t"),
    "v5e-256": ("16x16", 256, 64, 4, "ct5lp-hightpu-4t"),
    "v6e-1": ("1x1", 1, 1, 1, "ct6e-standard-1t"),
    "v6e-8": ("2x4", 8, 1, 8, "ct6e-standard-8t"),
    "v6e:16x16": ("16x16", 256, 64, 4, "ct6e-standard-4t"),
    "v5p-8": ("2x2x1", 4, 1, 4, "ct5p-hightpu-4t"),
    "v5p-128": ("4x4x4", 64, 16, 4, "ct5p-hightpu-4t"),
    "v5p-17920": ("16x20x28", 8960, 2240, 4, "ct5p-hightpu-4t"),
    "v5p:4x8x16": ("4x8x16", 512, 128, 4, "ct5p-hightpu-4t"),
    "tpu7x-2": ("1x1x1", 1, 1, 1, "tpu7x-standard-1t"),
    "tpu7x-8": ("2x2x1", 4, 1, 4, "tpu7x-standard-4t"),
    "tpu7x:4x4x4": ("4x4x4", 64, 16, 4, "tpu7x-standard-4t"),
    "tpu7x-18432": ("16x24x24", 9216, 2304, 4, "tpu7x-standard-4t"),
    "cpu:2x4": ("2x4", 8, 2, 4, None),
    "cpu:1x1": ("1x1", 1, 1, 1, None),
}

# name: words of the refusal; each kind is in test_suggestions.py, whole
REFUSALS = {
    "v5p-100": ("would be 50 chips", "v5p-64", "v5p-128"),
    "v5p-8576": ("4288 chips", "v5p-8448", "v5p-8704"),
    "v5p:4x4x6": ("every dimension a multiple of 4", "v5p:4x4x4"),
    "v4:16x16x20": ("5120 chips", "the largest v4 slice has 4096 chips"),
    "tpu7x-1": ("half a chip", "tpu7x-2 (1 chip on 1 host)"),
    "v3-16": ('"v3-16" would be 8 chips (v3 names count cores, 2 a chip)', "nearest: v3-8"),
    "v7x-8": ('perhaps "tpu7x-8"',),
    "v4": ("v4-64 or v4:2x4x4",),
    "tpu-v6e-slice": ("v6e-16 or v6e:4x4",),
    "ct6e-standard-4t": ("v6e-16",),
    "": ("allowed: a size such as",),
    "cpu-8": ("cpu:HOSTSxDEVICES",),
    "cpu:0x4": ("cpu:HOSTSxDEVICES",),
    "cpu:300x1": ("at most 256 hosts",),
}


@pytest.mark.parametrize("name", SLICES)
def test_a_name_stands_for_its_slice(name: str) -> None:
    found = parse_accelerator(name)
    assert (
        found.topology,
        found.chips,
        found.hosts_per_slice,
        found.chips_per_host,
        found.machine_type,
    ) == SLICES[name]
    assert found.name == name


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_does_the_sum(name: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        parse_accelerator(name)
    message = str(refusal.value)
    assert message.startswith("spec.accelerator: ")
    assert "\n" not in message
    for words in REFUSALS[name]:
        assert words in message


def _all_sizes() -> list[str]:
    return [f"{g.name}-{size}" for g in GENERATIONS.values() for size in g.sizes]


def test_every_size_is_whole_hosts_of_its_machine() -> None:
    for name in _all_sizes():
        found = parse_accelerator(name)
        assert found.hosts_per_slice * found.chips_per_host == found.chips, name
        number = int(name.rsplit("-", 1)[1])
        assert number == found.chips * GENERATIONS[found.generation].cores_in_size, name


def test_every_large_size_is_the_shape_nearest_to_a_cube() -> None:
    for generation in GENERATIONS.values():
        for shape in generation.shapes:
            if generation.dimensions != 3 or prod(shape) < 64:
                continue
            cubes = prod(shape) // 64
            candidates = [
                (a, b, cubes // a // b)
                for a, b in itertools.combinations_with_replacement(range(1, cubes + 1), 2)
                if cubes % (a * b) == 0 and cubes // a // b >= b
            ]
            best = min(candidates, key=sum)
            assert shape == tuple(4 * n for n in best), (generation.name, shape)


def test_sizes_have_no_gap_below_the_largest_common_slices() -> None:
    cubes = {prod(s) // 64 for s in GENERATIONS["v5p"].shapes if prod(s) >= 64}
    assert cubes >= set(range(1, 67))
    assert max(cubes) == 140
    assert max(prod(s) // 64 for s in GENERATIONS["tpu7x"].shapes) == 144


def test_selectors_are_the_labels_of_gke() -> None:
    assert parse_accelerator("v5e-256").node_selector == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "16x16",
    }
    assert parse_accelerator("cpu:2x4").node_selector == {}


@pytest.mark.parametrize(
    ("name", "devices"),
    [("v4-8", 4), ("v5p-8", 4), ("v5e-8", 8), ("v6e-16", 4), ("tpu7x-8", 8), ("tpu7x-2", 2), ("cpu:1x3", 3)],
)
def test_jax_sees_two_devices_on_each_tpu7x_chip(name: str, devices: int) -> None:
    assert parse_accelerator(name).devices_per_host == devices


def test_sizes_that_count_cores_carry_the_sum() -> None:
    assert parse_accelerator("v4-16").note == (
        "v4-16 is 8 chips on 2 hosts (v4 names count cores); for 16 chips ask for v4-32"
    )
    assert parse_accelerator("v4:2x2x2").note is None
    assert parse_accelerator("v5e-16").note is None


@pytest.mark.parametrize("name", ["v5e-8", "v6e-8", "v6e:2x4"])
def test_2x4_is_one_host_unless_two_are_asked_for(name: str) -> None:
    one, two = parse_accelerator(name), parse_accelerator(name, chips_per_host=4)
    assert (one.hosts_per_slice, one.node_selector[COUNT_LABEL]) == (1, "8")
    assert (two.hosts_per_slice, two.node_selector[COUNT_LABEL]) == (2, "4")
    assert one.note is not None
    assert COUNT_LABEL in one.note
    assert two.machine_type is not None
    assert two.machine_type.endswith("-4t")


def test_a_count_that_no_host_has_is_refused() -> None:
    with pytest.raises(InvalidField, match="whose hosts have 4 chips"):
        parse_accelerator("v6e-16", chips_per_host=8)


def test_multi_host_is_more_than_one_host() -> None:
    def is_multi_host(name: str) -> bool:
        accelerator: Accelerator = parse_accelerator(name)
        return accelerator.is_multi_host

    assert not is_multi_host("v6e-8")
    assert is_multi_host("v6e-16")


def test_the_largest_slice_is_allowed() -> None:
    assert parse_accelerator("v4:16x16x16").chips == 4096
    assert parse_accelerator("v5p:16x20x28").chips == 8960


def test_largest_cpu_accelerator_is_accepted() -> None:
    assert parse_accelerator(f"cpu:{MAX_CPU_HOSTS}x{MAX_CPU_DEVICES}").chips == MAX_CPU_HOSTS * MAX_CPU_DEVICES
    for text in (f"cpu:{MAX_CPU_HOSTS + 1}x1", f"cpu:1x{MAX_CPU_DEVICES + 1}"):
        with pytest.raises(InvalidField, match="at most"):
            parse_accelerator(text)
