"""What a refused accelerator's message says: the sum, what was meant, and what is next to it."""

import pytest

from tpujob_resource.topology.errors import InvalidField
from tpujob_resource.topology.parse import parse_accelerator
from tpujob_resource.topology.suggestions import FORMS

MESSAGES = {
    "vv4-8": f'there is no TPU generation "vv4" (perhaps "v4-8" is meant); allowed: {FORMS}',
    "v5-8": f'there is no TPU generation "v5" (perhaps "v5p-8" is meant); allowed: {FORMS}',
    "abcdefgh-8": f'there is no TPU generation "abcdefgh"; allowed: {FORMS}',
    "v4-6": "would be 3 chips (v4 names count cores, 2 a chip), and no v4 slice has that many; "
    "nearest: v4-8 (4 chips on 1 host), v4-16 (8 chips on 2 hosts)",
    "v4-7": "is half a chip too many (v4 names count cores, 2 a chip); "
    "nearest: v4-8 (4 chips on 1 host), v4-16 (8 chips on 2 hosts)",
    "v4-4": "would be 2 chips (v4 names count cores, 2 a chip), and no v4 slice has that many; for 4 chips ask for "
    "v4-8; nearest: v4-8 (4 chips on 1 host), v4-16 (8 chips on 2 hosts)",
    "v5litepod-3": "would be 3 chips, and no v5e slice has that many; "
    "nearest: v5e-1 (1 chip on 1 host), v5e-4 (4 chips on 1 host)",
    "v4-16000": "would be 8000 chips (v4 names count cores, 2 a chip), and no v4 slice has that many; "
    "nearest: v4-4096 (2048 chips on 512 hosts)",
    "v5p:8x4x4": 'write it as "v5p:4x4x8"',
    "v5p:1x2x2": 'write it as "v5p:2x2x1"',
    "v4:4x4x6": "is no v4 shape: 2x2x1, 2x2x2, 2x2x4, 2x4x4, or from 4x4x4 up every dimension a multiple of 4; "
    "nearest: v4:4x4x4 (64 chips on 16 hosts), v4:4x4x8 (128 chips on 32 hosts)",
    "v4:6x4x4": "is no v4 shape: 2x2x1, 2x2x2, 2x2x4, 2x4x4, or from 4x4x4 up every dimension a multiple of 4; "
    "nearest: v4:4x4x4 (64 chips on 16 hosts), v4:4x4x8 (128 chips on 32 hosts)",
    "v6e:4x2": 'write the smaller dimension first, "v6e:2x4"',
    "v6e:2x2x2": "has 3 dimensions, and v6e slices are AxB chips; "
    "nearest: v6e:2x2 (4 chips on 1 host), v6e:2x4 (8 chips on 1 host)",
    "v4:4x4": "has 2 dimensions, and v4 slices are AxBxC chips; "
    "nearest: v4:2x2x2 (8 chips on 2 hosts), v4:2x2x4 (16 chips on 4 hosts)",
    "v5p:24x24x16": "would be 9216 chips, and the largest v5p slice has 8960 chips; "
    "nearest: v5p:16x20x28 (8960 chips on 2240 hosts)",
    "v5p:12x8x8": 'write it as "v5p:8x8x12"',
    "v6e:3x3": "is no v6e shape; shapes: 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16",
    "A100": f"is a GPU, and tpujob runs on TPUs and, to rehearse, on CPUs; allowed: {FORMS}",
    "h100-8": f"is a GPU, and tpujob runs on TPUs and, to rehearse, on CPUs; allowed: {FORMS}",
    "nvidia-l4": f"is a GPU, and tpujob runs on TPUs and, to rehearse, on CPUs; allowed: {FORMS}",
    "v6e:16X16": 'write it in lower case without spaces, "v6e:16x16"',
    "v5litepod": f"is not an accelerator; for tpu-v5-lite-podslice write v5e-16 or v5e:4x4; allowed: {FORMS}",
    "v5e": f"is not an accelerator; for tpu-v5-lite-podslice write v5e-16 or v5e:4x4; allowed: {FORMS}",
    "tpu-v5-lite-podslice-16": "is not an accelerator; for tpu-v5-lite-podslice write v5e-16 or v5e:4x4; "
    f"allowed: {FORMS}",
    "hello": f"is not an accelerator; allowed: {FORMS}",
    "v2-8": f"v2 has no GKE node pools and is not supported; allowed: {FORMS}",
    "v6e-300": "would be 300 chips, and no v6e slice has that many; nearest: v6e-256 (256 chips on 64 hosts)",
    "v6e-2": "would be 2 chips, and no v6e slice has that many; "
    "nearest: v6e-1 (1 chip on 1 host), v6e-4 (4 chips on 1 host)",
    "v5p:28x20x16": 'write it as "v5p:16x20x28"',
    "v5p:10x28x32": "is no v5p shape: 2x2x1, 2x2x2, 2x2x4, 2x4x4, or from 4x4x4 up every dimension a multiple of 4; "
    "nearest: v5p:12x24x24 (6912 chips on 1728 hosts), v5p:16x20x28 (8960 chips on 2240 hosts)",
    "v5p:10x30x30": "would be 9000 chips, and the largest v5p slice has 8960 chips; "
    "nearest: v5p:16x20x28 (8960 chips on 2240 hosts)",
    "v4:4x4x0": "is no v4 shape: 2x2x1, 2x2x2, 2x2x4, 2x4x4, or from 4x4x4 up every dimension a multiple of 4; "
    "nearest: v4:2x2x1 (4 chips on 1 host), v4:2x2x2 (8 chips on 2 hosts)",
    "v4:0x4x4": "is no v4 shape: 2x2x1, 2x2x2, 2x2x4, 2x4x4, or from 4x4x4 up every dimension a multiple of 4; "
    "nearest: v4:2x2x1 (4 chips on 1 host), v4:2x2x2 (8 chips on 2 hosts)",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_refusal_suggests_what_exists(name: str) -> None:
    with pytest.raises(InvalidField) as refused:
        parse_accelerator(name)
    said = str(refused.value).removeprefix(f'spec.accelerator: "{name}"').removeprefix(": ").strip()
    assert said == MESSAGES[name]


NOTES = {
    "v4:8x4x4": "v4:8x4x4: the usual order is 4x4x8; pods wait for a node pool made with exactly 8x4x4",
    "v4:4x4x8": None,
    "v4:2x2x1": None,
    "v4-8": "v4-8 is 4 chips on 1 host (v4 names count cores); for 8 chips ask for v4-16",
    "v4-4096": "v4-4096 is 2048 chips on 512 hosts (v4 names count cores)",
    "v5litepod-16": None,
}


@pytest.mark.parametrize("name", NOTES)
def test_name_that_can_be_misread_has_a_note(name: str) -> None:
    assert parse_accelerator(name).note == NOTES[name]


TWO_MACHINES = {
    # what is asked for: (slices, chips on a host), the note
    "one slice": (1, None, "v6e-8 is 8 chips on 1 host (ct6e-standard-8t); for 2 hosts of 4 chips add nodeSelector"),
    "hosts of 4 chips": (1, 4, "v6e-8 is 8 chips on 2 hosts (ct6e-standard-4t), as its nodeSelector asks"),
    "two slices": (
        2,
        None,
        "v6e-8 is 8 chips on 2 hosts (ct6e-standard-4t), as GKE joins only slices of several hosts",
    ),
}


@pytest.mark.parametrize(("slices", "chips_per_host", "note"), TWO_MACHINES.values(), ids=TWO_MACHINES.keys())
def test_8_chips_on_two_machines_are_told(slices: int, chips_per_host: int | None, note: str) -> None:
    found = parse_accelerator("v6e-8", slices=slices, chips_per_host=chips_per_host).note
    assert found is not None
    assert found.startswith(note)
