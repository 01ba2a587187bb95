"""Narrow tensors of published models are read as the bfloat16 numbers that they stand for."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.trainer.model.weights.make_reference import FOLDER
from tpujob_trainer.data.sources.files import open_root
from tpujob_trainer.model.weights.quantized_files import DequantizedFolder
from tpujob_trainer.model.weights.read_shape import read_shape
from tpujob_trainer.model.weights.safetensors import DTYPES, SINGLE, SafetensorsFolder
from tpujob_trainer.values.errors import ConfigurationError

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [16, 8]}
FP4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]


def write(folder, tensors):
    """A file of safetensors: the library has no numpy type for FP8."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    entries, content = {}, b""
    for name, array in tensors.items():
        end = len(content) + array.nbytes
        entries[name] = {"dtype": names[array.dtype], "shape": array.shape, "data_offsets": [len(content), end]}
        content += array.tobytes()
    header = json.dumps(entries).encode()
    (folder / SINGLE).write_bytes(len(header).to_bytes(8, "little") + header + content)


def opened(folder, quantization):
    return DequantizedFolder(SafetensorsFolder(open_root(str(folder)), "model.from"), quantization)


@pytest.mark.parametrize(("first", "stop"), [(0, 48), (5, 33), (16, 32), (47, 48)])
def test_fp8_is_multiplied_by_the_scale_of_its_block(tmp_path, first, stop):
    wide = load_file(FOLDER / "llama" / SINGLE)["model.layers.0.mlp.up_proj.weight"][:, :20]
    scales = np.random.default_rng(0).uniform(0.5, 2, (3, 3)).astype(np.float32)
    factors = np.kron(scales, np.ones((16, 8), np.float32))[:, :20]
    narrow = (wide / factors).astype(jnp.float8_e4m3fn)
    write(tmp_path, {"a.weight": narrow, "a.weight_scale_inv": scales})

    found = opened(tmp_path, FP8).read("a.weight", first, stop)

    expected = (narrow.astype(np.float32) * factors).astype(jnp.bfloat16)[first:stop]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(found.astype(np.float32), wide[first:stop], rtol=0.07, atol=2e-3)


def test_mxfp4_is_two_numbers_a_byte_and_a_power_of_two_for_each_32(tmp_path):
    dice = np.random.default_rng(1)
    codes = dice.integers(0, 16, (2, 3, 2, 32))
    exponents = dice.integers(120, 130, (2, 3, 2), dtype=np.uint8)
    blocks = (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)
    write(tmp_path, {"experts.up_blocks": blocks, "experts.up_scales": exponents})
    folder = opened(tmp_path, {"quant_method": "mxfp4"})

    found = folder.read("experts.up", 0, 2)

    assert folder.require("experts.up", (2, 64, 3)).shape == found.shape
    for expert, column, group, at in np.ndindex(2, 3, 2, 32):
        power = 2.0 ** (int(exponents[expert, column, group]) - 127)
        assert float(found[expert, group * 32 + at, column]) == FP4[codes[expert, column, group, at]] * power
    np.testing.assert_array_equal(folder.read("experts.up", 1, 2), found[1:])


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({"quant_method": "gptq", "bits": 4}, r"quantized \(gptq\), and only fp8 with weight_block_size and mxfp4"),
        ({"quant_method": "fp8"}, r"quantized \(fp8\) with weight_block_size None; two whole numbers are read"),
        ({**FP8, "fmt": "e5m2"}, r"quantized \(fp8\) as 'e5m2'; only 'e4m3' is read"),
    ],
)
def test_other_methods_are_refused_by_name(tmp_path, quantization, message):
    given = json.loads((FOLDER / "llama" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**given, "quantization_config": quantization}))
    with pytest.raises(ConfigurationError, match=message):
        read_shape(str(tmp_path), remat="none", compute_dtype="float32")


def test_a_scale_of_another_shape_is_refused(tmp_path):
    narrow = np.zeros((32, 16), jnp.float8_e4m3fn)
    write(tmp_path, {"a.weight": narrow, "a.weight_scale_inv": np.ones((1, 2), np.float32)})
    with pytest.raises(ConfigurationError, match=r"'a\.weight_scale_inv' is \(1, 2\), config\.json makes it \(2, 2\)"):
        opened(tmp_path, FP8)
