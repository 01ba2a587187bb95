"""Adapters change a model as PEFT says, are written in its layout, and are all that is trained."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from safetensors.numpy import load_file

from tests.trainer.model.weights.make_reference import ADAPTER, FOLDER, PROMPT
from tests.trainer.model.weights.running import logits
from tpujob_trainer.model.lora import LORA, LoraModel
from tpujob_trainer.model.lora_config import LoraConfig
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.weights.adapter import export_adapter
from tpujob_trainer.model.weights.companions import Companions, read_config
from tpujob_trainer.model.weights.load import load_weights
from tpujob_trainer.model.weights.read_shape import read_shape
from tpujob_trainer.train.optimizer import adapters_only

pytestmark = pytest.mark.usefixtures("compiled_once")

RANK = 3


@pytest.fixture(scope="module")
def model() -> LoraModel:
    shape = read_shape(str(FOLDER / "llama"), remat="none", compute_dtype="float32")
    return LoraModel(shape, build_mesh(slices=1), LoraConfig(rank=RANK, alpha=6.0))


@pytest.fixture(scope="module")
def weights(model):
    """The weights of the decoder, and adapters as if they had been trained."""
    base = load_weights(str(FOLDER / "llama"), model.shape, model.abstract_weights, model.shardings)
    dice = np.random.default_rng(3)
    adapters = jax.tree.map(
        lambda leaf: dice.normal(0, 0.2, leaf.shape).astype(np.float32), model.abstract_weights[LORA]
    )
    return {**base, LORA: jax.device_put(adapters, model.shardings[LORA])}


def test_adapter_is_written_as_peft_reads_it(model, weights, tmp_path):
    export_adapter(str(tmp_path), model, weights, base=None)

    for file in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / file).read_bytes() == (ADAPTER / file).read_bytes()


def test_adapter_has_the_files_beside_its_weights(model, weights, tmp_path):
    files = {"tokenizer.json": b"{}", "chat_template.jinja": b"a"}
    export_adapter(str(tmp_path), model, weights, base=None, companions=Companions(config={}, files=files))

    assert {file.name for file in tmp_path.iterdir()} == {*files, "adapter_config.json", "adapter_model.safetensors"}
    assert (tmp_path / "tokenizer.json").read_bytes() == b"{}"


def test_logits_equal_those_of_peft(model, weights):
    expected = np.array(json.loads((ADAPTER / "expected.json").read_text())["logits"])

    np.testing.assert_allclose(logits(model, weights, PROMPT), expected, atol=1e-4, rtol=0)


def test_only_adapters_are_trained(model, weights):
    optimizer = adapters_only(optax.adam(0.1))
    gradients = jax.tree.map(np.ones_like, weights)
    updates, _ = optimizer.update(gradients, optimizer.init(weights), weights)

    moved = jax.tree.map_with_path(lambda path, leaf: bool(np.any(leaf)) == (path[0].key == LORA), updates)
    assert all(jax.tree.leaves(moved))


def test_new_adapters_change_nothing(model, weights):
    fresh = {**weights, LORA: model.init_adapters(0)}
    expected = np.array(json.loads((FOLDER / "llama" / "expected.json").read_text())["logits"])

    np.testing.assert_allclose(logits(model, fresh, PROMPT), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("base", "written"),
    [
        ("hf://Qwen/Qwen3-8B", {"base_model_name_or_path": "Qwen/Qwen3-8B"}),
        ("hf://Qwen/Qwen3-8B@abc", {"base_model_name_or_path": "Qwen/Qwen3-8B", "revision": "abc"}),
        ("file:///models/qwen", {"base_model_name_or_path": "/models/qwen"}),
        ("models", {"base_model_name_or_path": str(Path("models").absolute())}),
    ],
)
def test_base_is_a_name_or_folder_that_peft_can_use(model, weights, tmp_path, base, written):
    export_adapter(str(tmp_path), model, weights, base=base)

    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert written.items() <= config.items()


def test_a_base_that_peft_cannot_read_is_said(model, weights, tmp_path, caplog):
    export_adapter(str(tmp_path), model, weights, base="gs://b/qwen")

    assert "PEFT cannot read gs://b/qwen; write a copy's folder" in caplog.text


def test_adapter_of_a_model_with_images_is_of_its_decoder_alone(tmp_path):
    folder = FOLDER / "gemma3-images"
    model = LoraModel(
        read_shape(str(folder), remat="none", compute_dtype="float32"), build_mesh(slices=1), LoraConfig(rank=2)
    )
    adapters = {LORA: model.init_adapters(0)}

    export_adapter(str(tmp_path), model, adapters, base=None, companions=Companions(config=read_config(str(folder))))

    pattern = json.loads((tmp_path / "adapter_config.json").read_text())["target_modules"]
    assert re.fullmatch(pattern, "model.language_model.layers.2.self_attn.q_proj")
    assert not re.fullmatch(pattern, "model.vision_tower.encoder.layers.0.self_attn.q_proj")
    written = load_file(tmp_path / "adapter_model.safetensors")
    assert all(name.startswith("base_model.model.model.language_model.layers.") for name in written)
