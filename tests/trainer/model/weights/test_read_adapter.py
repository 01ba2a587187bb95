"""Adapters of PEFT are read as PEFT computes them, and what would compute something else is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.trainer.model.weights.make_reference import ADAPTER, FOLDER, PROMPT
from tests.trainer.model.weights.running import logits
from tests.trainer.model.weights.table import lora_model
from tpujob_trainer.errors import ConfigurationError, NotFoundError
from tpujob_trainer.model.lora import LORA
from tpujob_trainer.model.weights.adapter import export_adapter
from tpujob_trainer.model.weights.companions import read_config
from tpujob_trainer.model.weights.load import load_weights
from tpujob_trainer.model.weights.read_adapter import read_adapter

pytestmark = pytest.mark.usefixtures("compiled_once")


def test_logits_with_a_stored_adapter_are_those_of_peft():
    model, source = lora_model("llama")
    weights = load_weights(source, model.shape, model.abstract_weights, model.shardings)

    weights[LORA] = read_adapter(str(ADAPTER), model, read_config(source))

    expected = np.array(json.loads((ADAPTER / "expected.json").read_text())["logits"])
    np.testing.assert_allclose(logits(model, weights, PROMPT), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["llama", "phi3", "gemma3-images", "qwen3-moe", "gpt-oss"])
def test_what_is_exported_is_read_again(tmp_path, name):
    model, source = lora_model(name)
    dice = np.random.default_rng(1)
    drawn = jax.tree.map(lambda leaf: dice.normal(size=leaf.shape).astype(np.float32), model.abstract_weights[LORA])
    config = read_config(source)
    export_adapter(str(tmp_path), model, {LORA: drawn}, base=source, source=config)

    found = read_adapter(str(tmp_path), model, config)

    jax.tree.map(np.testing.assert_array_equal, found, drawn)


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "DoRA": ({"use_dora": True}, "has use_dora: true, which is not computed here; only false is"),
    "trained biases": ({"bias": "all"}, 'has bias: "all", which is not computed here; only "none" is'),
    "IA3": ({"peft_type": "IA3"}, 'has peft_type: "IA3", which is not computed here; only "LORA" is'),
    "whole modules": ({"modules_to_save": ["lm_head"]}, "has modules_to_save:"),
    "another rank": ({"r": 4}, r"lora.rank: the adapter in .* has 4, the job says 3; write rank: 4"),
    "another alpha": ({"lora_alpha": 7}, r"lora.alpha: the adapter in .* has 7, the job says 6; write alpha: 7"),
    "by the root of the rank": (
        {"use_rslora": True},
        r"has 10.3923048 \(lora_alpha times the root of r, by",
    ),
    "one module counts more": ({"alpha_pattern": {"q_proj": 12}}, "alpha 12 and rank 3 for 'q_proj', which counts"),
    "no rank": ({"r": None}, "is not a configuration of PEFT"),
    "a rank of nothing": ({"r": 0}, r"adapter_config.json is not a configuration of PEFT: .*a rank of 0"),
    "a rank that is no number": ({"r": False}, "a rank of False"),
    "an alpha that is no number": ({"lora_alpha": True}, "an alpha of True"),
    "a pattern of nothing": ({"rank_pattern": {"q_proj": 0}}, "a rank of 0"),
    "patterns in a list": ({"alpha_pattern": ["q_proj"]}, "rank_pattern and alpha_pattern are not objects"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_settings_of_another_sum_are_refused(tmp_path, change):
    values, message = CHANGES[change]
    shutil.copytree(ADAPTER, tmp_path, dirs_exist_ok=True)
    written = json.loads((ADAPTER / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(written | values))
    model, source = lora_model("llama")

    with pytest.raises(ConfigurationError, match=message):
        read_adapter(str(tmp_path), model, read_config(source))


def _without(name: str, tensors: dict[str, np.ndarray]) -> None:
    del tensors[name]


def _beside(name: str, tensors: dict[str, np.ndarray]) -> None:
    tensors["base_model.model.lm_head.lora_A.weight"] = tensors[name]


def _narrow(name: str, tensors: dict[str, np.ndarray]) -> None:
    tensors[name] = tensors[name][:, :5].copy()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without, "adapter_model.safetensors has no tensor '.*q_proj.lora_A.weight' that is read; lora.targets names"),
        (_beside, "has 'base_model.model.lm_head.lora_A.weight', which nothing of spec.trainer.lora.targets takes"),
        (_narrow, r"an adapter is \(3, 5, 3\), the model makes it \(3, 32, 3\)"),
    ],
    ids=["missing", "too many", "narrow"],
)
def test_tensors_of_another_model_are_refused(tmp_path, damage, message):
    shutil.copytree(ADAPTER, tmp_path, dirs_exist_ok=True)
    tensors = load_file(ADAPTER / "adapter_model.safetensors")
    for name in sorted(tensors):
        if name.endswith("q_proj.lora_A.weight"):
            damage(name, tensors)
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    model, source = lora_model("llama")

    with pytest.raises(ConfigurationError, match=message):
        read_adapter(str(tmp_path), model, read_config(source))


def test_folder_without_an_adapter_is_named(tmp_path):
    model, source = lora_model("llama")
    with pytest.raises(NotFoundError, match=r"spec.trainer.lora.from: .*nowhere"):
        read_adapter(str(tmp_path / "nowhere"), model, read_config(source))


def test_weights_of_a_model_are_no_adapter():
    model, source = lora_model("llama")
    with pytest.raises(NotFoundError, match=r"spec.trainer.lora.from: .* has no adapter_config.json; name"):
        read_adapter(str(Path(FOLDER / "llama")), model, read_config(source))
