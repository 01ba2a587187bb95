"""On eight devices of one process; several processes are in tests/multiprocess."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from tpujob_trainer.checkpoint.fingerprint import Fingerprinter, _programs, leaf_names, unequal


@pytest.fixture(scope="module")
def fingerprint():
    fingerprinter = Fingerprinter()
    return lambda leaf: fingerprinter({"leaf": leaf}).by_leaf["leaf"]


@pytest.fixture(scope="module")
def values():
    return np.random.default_rng(0).normal(size=(16, 24)).astype(np.float32)


def flipped(values, row, column, bit):
    words = values.copy().view(np.uint32)
    words[row, column] ^= np.uint32(1 << bit)
    return words.view(np.float32)


def swapped(values, one, other):
    found = values.copy()
    found[one], found[other] = values[other], values[one]
    return found


@pytest.mark.parametrize("shape", [(8, 1), (1, 8), (4, 2), (2, 4)], ids=str)
@pytest.mark.parametrize("spec", [("a", "b"), ("b", "a"), (("a", "b"), None), (None, "b"), (None, None)], ids=str)
def test_every_sharding_has_the_same_fingerprint(fingerprint, values, shape, spec):
    mesh = jax.make_mesh(shape, ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    placed = jax.device_put(values, NamedSharding(mesh, PartitionSpec(*spec)))
    assert fingerprint(placed) == fingerprint(jnp.asarray(values))


def test_forms_of_one_division_are_compiled_for_once(values):
    mesh = jax.make_mesh((8, 1), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    compiled = set()
    for spec in (("a",), ("a", None), ("a", "b"), (("a", "b"), None)):
        abstract = jax.ShapeDtypeStruct(values.shape, values.dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))
        ((_, program),) = _programs([abstract])
        compiled.add(program)
    assert len(compiled) == 1
    # And it takes arrays of any of these forms.
    for spec in (("a",), ("a", "b")):
        placed = jax.device_put(values, NamedSharding(mesh, PartitionSpec(*spec)))
        assert Fingerprinter()({"leaf": placed}) == Fingerprinter()({"leaf": values})


@pytest.mark.parametrize(
    "change",
    [
        lambda v: flipped(v, 0, 0, 0),
        lambda v: flipped(v, 15, 23, 31),
        lambda v: flipped(v, 7, 3, 12),
        lambda v: swapped(v, (0, 0), (0, 1)),
        lambda v: swapped(v, (0, 0), (1, 0)),
        lambda v: swapped(v, (3, 5), (5, 3)),
        lambda v: v[::-1],
        lambda v: v.reshape(24, 16),
        lambda v: np.where(np.indices(v.shape).sum(axis=0) == 0, np.float32(-0.0), v),
        lambda v: np.zeros_like(v),
    ],
    ids=["low", "sign", "middle", "swap in row", "swap in column", "transposed", "order", "shape", "one", "zeros"],
)
def test_any_change_is_seen_in_both_sums(fingerprint, values, change):
    before, after = fingerprint(jnp.asarray(values)), fingerprint(jnp.asarray(change(values)))
    assert before[:8] != after[:8]
    assert before[8:] != after[8:]


def test_no_two_single_bits_are_alike(fingerprint):
    zeros = np.zeros((8, 16), np.uint32)
    found = set()
    for position in range(0, 128, 5):
        for bit in range(0, 32, 7):
            words = zeros.copy()
            words.flat[position] = 1 << bit
            found.add(fingerprint(jnp.asarray(words)))
    assert len(found) == 26 * 5


@pytest.mark.parametrize(
    ("leaf", "other"),
    [
        (jnp.float32(0.0), jnp.float32(-0.0)),
        (jnp.bfloat16(1.0), jnp.bfloat16(1.0078125)),
        (jnp.array([True, False]), jnp.array([False, True])),
        (jnp.int8([1, -1]), jnp.int8([1, -2])),
        (jnp.int32(7), jnp.int32(8)),
        (jnp.array([1, 2], jnp.int4), jnp.array([1, 3], jnp.int4)),
        (jnp.array([1.0], jnp.float8_e4m3fn), jnp.array([2.0], jnp.float8_e4m3fn)),
        (jnp.complex64(1 + 2j), jnp.complex64(2 + 1j)),
        (jax.random.key(0), jax.random.key(1)),
        (np.arange(3), np.arange(3)[::-1]),
    ],
    ids=["zero's sign", "bfloat16", "bool", "int8", "int32", "int4", "float8", "complex", "key", "numpy"],
)
def test_every_type_of_leaf_has_one(fingerprint, leaf, other):
    assert fingerprint(leaf) == fingerprint(leaf)
    assert fingerprint(leaf) != fingerprint(other)


def test_64_bit_values_have_one():
    with jax.enable_x64(True):
        one, other = (Fingerprinter()({"leaf": jnp.float64(x)}).by_leaf["leaf"] for x in (1.0, 1.0 + 2**-52))
    assert one != other


def test_copies_that_differ_are_named():
    mesh = jax.make_mesh((8,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec())
    parts = [jax.device_put(np.float32(i == 5), device) for i, device in enumerate(mesh.devices.flat)]
    bad = jax.make_array_from_single_device_arrays((), sharding, parts)
    good = jax.device_put(np.float32(1), sharding)
    assert Fingerprinter()({"bad": bad, "good": good}).differing_copies == ["bad"]


def test_names_are_paths():
    assert leaf_names({"a": [0, {"b": 1}], "c": (2,)}) == ["a/0", "a/1/b", "c/0"]


def test_missing_and_changed_leaves_are_unequal():
    assert unequal({"a": "1", "b": "2", "c": "3"}, {"b": "2", "c": "4", "d": "5"}) == ["a", "c", "d"]
