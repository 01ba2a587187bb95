"""Models that transformers wrote compute here what they compute there."""

import functools
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.trainer.model.weights.make_reference import FAMILIES, FOLDER, PROMPT
from tests.trainer.model.weights.running import greedy, logits
from tpujob_trainer.model.config import ModelConfig
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.model.weights import load as loading
from tpujob_trainer.model.weights.load import load_weights
from tpujob_trainer.model.weights.read_shape import read_shape, with_shape_read
from tpujob_trainer.values.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("compiled_once")

ALONE = MeshShape()
TOLERANCE = 1e-4
"""Of float32 logits between 1 and 20."""


CACHED = ("mistral", "gemma2", "gemma3", "smollm3", "granite", "gpt-oss", "qwen2-moe", "deepseek-v3", "phi3-long")
"""One of each kind of attention, of position and of block: what follows the cached tokens is computed apart."""
DIVIDED = ("llama", "phi3", "gpt-oss", "deepseek-v3")
"""One of each way in which files stack, join and transpose what a device keeps a part of."""


def load(folder: Path, mesh: MeshShape = ALONE):
    shape = read_shape(str(folder), remat="none", compute_dtype="float32")
    model = Model(shape, build_mesh(slices=1, devices=jax.devices()[: math.prod(mesh.sizes)], shape=mesh))
    return model, load_weights(str(folder), shape, model.abstract_weights, model.shardings)


@functools.cache
def loaded(name: str):
    """The model of a family and its weights, on one device: what it computes on several is claimed of the decoder."""
    return load(FOLDER / name)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_equal_those_of_transformers(name):
    model, weights = loaded(name)
    expected = np.array(json.loads((FOLDER / name / "expected.json").read_text())["logits"])

    found = logits(model, weights, PROMPT)

    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0)
    assert jax.tree.map(jnp.shape, weights) == jax.tree.map(jnp.shape, model.abstract_weights)


@pytest.mark.parametrize("name", [*CACHED, "llama-dynamic"])
def test_generation_equals_that_of_transformers(name):
    model, weights = loaded(name)
    expected = json.loads((FOLDER / name / "expected.json").read_text())["generated"]

    assert greedy(model, weights, PROMPT, len(expected)) == expected


@pytest.mark.parametrize("name", DIVIDED)
def test_divided_weights_are_those_of_one_device(name):
    model, weights = load(FOLDER / name, MeshShape(fsdp=2, tensor=2))

    jax.tree.map(np.testing.assert_array_equal, weights, loaded(name)[1])
    assert [leaf.sharding for leaf in jax.tree.leaves(weights)] == jax.tree.leaves(model.shardings)


def test_layers_behind_the_last_one_are_left_out_with_a_line(tmp_path, caplog):
    """As DeepSeek-V3's, which predict a second token."""
    for file in (FOLDER / "moonlight").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    more = {"model.layers.3.eh_proj.weight": np.ones((32, 64), np.float32)}
    save_file({**tensors, **more}, tmp_path / "model.safetensors")

    _, found = load(tmp_path)

    jax.tree.map(np.testing.assert_array_equal, found, loaded("moonlight")[1])
    (line,) = [record.message for record in caplog.records if "no use for" in record.message]
    assert line.endswith("count=1, the first is model.layers.3.eh_proj.weight")


def test_weights_are_converted_one_by_one(monkeypatch):
    model, wide = loaded("llama")
    float32 = []
    put = loading._put

    def counting(weights, path, value):
        put(weights, path, value)
        float32.append(sum(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(weights)))

    monkeypatch.setattr(loading, "_put", counting)
    source = str(FOLDER / "llama")
    narrow = load_weights(source, model.shape, model.abstract_weights, model.shardings, dtype="bfloat16")
    assert set(float32) == {0}
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b.astype(jnp.bfloat16)), narrow, wide)


def test_output_of_a_tied_model_may_be_in_its_files_if_it_is_the_embedding(tmp_path):
    tensors = load_file(FOLDER / "llama-tied" / "model.safetensors")
    (tmp_path / "config.json").write_bytes((FOLDER / "llama-tied" / "config.json").read_bytes())
    output = tensors["model.embed_tokens.weight"].copy()
    save_file({**tensors, "lm_head.weight": output}, tmp_path / "model.safetensors")
    load(tmp_path)

    output[-1, -1] += 1
    save_file({**tensors, "lm_head.weight": output}, tmp_path / "model.safetensors")
    with pytest.raises(ConfigurationError, match=r"lm_head\.weight in 'model\.safetensors' is not model\.embed_tokens"):
        load(tmp_path)


def test_a_key_that_is_not_known_is_left_out_where_the_configuration_says_so(tmp_path):
    given = json.loads((FOLDER / "llama" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**given, "is_causal": True}))
    with pytest.raises(ConfigurationError, match="is_causal may change numbers"):
        with_shape_read(ModelConfig(from_=str(tmp_path)))

    found = with_shape_read(ModelConfig(from_=str(tmp_path), ignore_config_keys=("is_causal",)))

    expected = with_shape_read(ModelConfig(from_=str(FOLDER / "llama")))
    assert found.resolve(vocabulary=2, platform="cpu") == expected.resolve(vocabulary=2, platform="cpu")
