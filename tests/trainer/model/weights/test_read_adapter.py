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
from tpujob_trainer.model.lora import LORA, product
from tpujob_trainer.model.weights.adapter import export_adapter
from tpujob_trainer.model.weights.companions import Companions, read_config
from tpujob_trainer.model.weights.load import load_weights
from tpujob_trainer.model.weights.read_adapter import read_adapter
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError

pytestmark = pytest.mark.usefixtures("compiled_once")


def test_logits_with_a_stored_adapter_are_those_of_peft():
    model, source = lora_model("llama")
    weights = load_weights(source, model.shape, model.abstract_weights, model.shardings)

    weights[LORA] = read_adapter(str(ADAPTER), model, read_config(source))

    expected = np.array(json.loads((ADAPTER / "expected.json").read_text())["logits"])
    np.testing.assert_allclose(logits(model, weights, PROMPT), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["llama", "phi3", "gemma3-images", "qwen3-moe", "mixtral", "gpt-oss", "deepseek-v3"])
def test_what_is_exported_is_read_again(tmp_path, name):
    model, source = lora_model(name)
    dice = np.random.default_rng(1)
    drawn = jax.tree.map(lambda leaf: dice.normal(size=leaf.shape).astype(np.float32), model.abstract_weights[LORA])
    config = read_config(source)
    export_adapter(str(tmp_path), model, {LORA: drawn}, base=source, companions=Companions(config=config))

    found = read_adapter(str(tmp_path), model, config)

    jax.tree.map(np.testing.assert_array_equal, found, drawn)


def fused(tensors: dict[str, np.ndarray], layers: int, experts: int, *, is_shared: bool) -> dict[str, np.ndarray]:
    """Experts' adapters as PEFT keeps them beside transformers 5, from those of single experts.

    Args:
        tensors: of Mixtral's names.
        layers: of the model.
        experts: of each layer.
        is_shared: gate and up have one A, as an adapter that was made there has; that of gate is taken.
    """
    made = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    for layer in range(layers):
        there = f"base_model.model.model.layers.{layer}.mlp.experts"

        def of(matrix: str, each: str, layer: int = layer) -> np.ndarray:
            block = f"base_model.model.model.layers.{layer}.block_sparse_moe.experts"
            return np.stack([tensors[f"{block}.{at}.{matrix}.lora_{each}.weight"] for at in range(experts)])

        gate, up, down = ((of(matrix, "A"), of(matrix, "B")) for matrix in ("w1", "w3", "w2"))
        if is_shared:
            wide = (gate[0], np.concatenate([gate[1], up[1]], axis=1))
        else:
            nothing = np.zeros_like(gate[1])
            blocks = np.block([[gate[1], nothing], [nothing, up[1]]])
            wide = (np.concatenate([gate[0], up[0]], axis=1), blocks)
        for module, (a, b) in ((f"{there}.base_layer", wide), (there, down)):
            made[f"{module}.lora_A.weight"] = np.ascontiguousarray(a.reshape(-1, a.shape[2]))
            made[f"{module}.lora_B.weight"] = np.ascontiguousarray(b.transpose(1, 2, 0).reshape(b.shape[1], -1))
    return made


@pytest.mark.parametrize("is_shared", [False, True], ids=["of four", "of five"])
def test_experts_of_transformers_5_are_those_of_4(tmp_path, is_shared):
    """PEFT itself writes this form for `make reference-models`."""
    model, source = lora_model("mixtral")
    dice = np.random.default_rng(1)
    drawn = jax.tree.map(lambda leaf: dice.normal(size=leaf.shape).astype(np.float32), model.abstract_weights[LORA])
    if is_shared:
        drawn["up"]["a"] = drawn["gate"]["a"]
    config = read_config(source)
    export_adapter(str(tmp_path), model, {LORA: drawn}, base=source, companions=Companions(config=config))
    written = fused(load_file(tmp_path / "adapter_model.safetensors"), model.shape.layers, 4, is_shared=is_shared)
    save_file(written, tmp_path / "adapter_model.safetensors")

    found = read_adapter(str(tmp_path), model, config)

    jax.tree.map(np.testing.assert_array_equal, found, drawn)


def _half_missing(tensors: dict[str, np.ndarray]) -> None:
    del tensors["base_model.model.model.layers.0.mlp.experts.base_layer.lora_B.weight"]


def _layer_missing(tensors: dict[str, np.ndarray]) -> None:
    for name in [name for name in tensors if ".layers.1.mlp.experts." in name]:
        del tensors[name]


def _wide(tensors: dict[str, np.ndarray]) -> None:
    name = "base_model.model.model.layers.2.mlp.experts.lora_A.weight"
    tensors[name] = np.concatenate([tensors[name], tensors[name]], axis=1)


def _mixed(tensors: dict[str, np.ndarray]) -> None:
    name = "base_model.model.model.layers.0.mlp.experts.base_layer.lora_B.weight"
    tensors[name] = tensors[name] + 1


def _ungated(tensors: dict[str, np.ndarray]) -> None:
    for name in [name for name in tensors if ".layers.0.mlp.experts.base_layer" in name]:
        del tensors[name]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_half_missing, r"layers\.0\.mlp\.experts\.base_layer has lora_A or lora_B alone"),
        (_layer_missing, r"has no adapters of base_model\.model\.model\.layers\.1\.mlp\.experts"),
        (_wide, r"layers\.2\.mlp\.experts is \(12, 96\) and \(32, 12\); this model's are of rank 3 between 32 and 48"),
        (_mixed, r"has rank 6, which does not divide into one of rank 3 for gate and one for up; write rank: 6"),
        (_ungated, r"layers\.0\.mlp\.experts has adapters of down; name these, and no others"),
    ],
)
def test_damaged_adapters_of_experts_are_named(tmp_path, damage, message):
    model, source = lora_model("mixtral")
    drawn = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), model.abstract_weights[LORA])
    config = read_config(source)
    export_adapter(str(tmp_path), model, {LORA: drawn}, base=source, companions=Companions(config=config))
    tensors = fused(load_file(tmp_path / "adapter_model.safetensors"), model.shape.layers, 4, is_shared=False)
    damage(tensors)
    save_file(tensors, tmp_path / "adapter_model.safetensors")

    with pytest.raises(ConfigurationError, match=message):
        read_adapter(str(tmp_path), model, config)


def test_adapters_of_several_ranks_are_filled_up(tmp_path):
    """What gate and up share has twice the rank of the rest, as PEFT makes it beside transformers 5."""
    model, source = lora_model("mixtral")
    dice = np.random.default_rng(1)
    drawn = jax.tree.map(lambda leaf: dice.normal(size=leaf.shape).astype(np.float32), model.abstract_weights[LORA])
    config = read_config(source)
    export_adapter(str(tmp_path), model, {LORA: drawn}, base=source, companions=Companions(config=config))
    written = fused(load_file(tmp_path / "adapter_model.safetensors"), model.shape.layers, 4, is_shared=False)
    save_file(written, tmp_path / "adapter_model.safetensors")
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    patterns = {"rank_pattern": {r".*\.gate_up_proj": 6}, "alpha_pattern": {r".*\.gate_up_proj": 12.0}}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings | patterns))
    wide, _ = lora_model("mixtral", 2)

    found = read_adapter(str(tmp_path), wide, config)

    for name, place in model.places.items():
        for layers in (found[name], drawn[name]):
            layers["all"] = np.asarray(
                product(layers, place, model.abstract_weights["layers"][place.module][name].shape)
            )
        np.testing.assert_allclose(found[name]["all"], drawn[name]["all"], atol=1e-5)
        assert found[name]["a"].shape[-1] == 6


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "DoRA": ({"use_dora": True}, "has use_dora: true, which is not computed here; only false is"),
    "trained biases": ({"bias": "all"}, 'has bias: "all", which is not computed here; only "none" is'),
    "another parameter": ({"target_parameters": ["norm.weight"]}, "only those of experts, gate_up_proj and down_proj"),
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


def _of_less_rank(name: str, tensors: dict[str, np.ndarray]) -> None:
    tensors[name] = tensors[name][:2].copy()
    other = name.replace("lora_A", "lora_B")
    tensors[other] = tensors[other][:, :2].copy()


def _narrow(name: str, tensors: dict[str, np.ndarray]) -> None:
    tensors[name] = tensors[name][:, :5].copy()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without, "adapter_model.safetensors has no tensor '.*q_proj.lora_A.weight' that is read; lora.targets names"),
        (_beside, "has 'base_model.model.lm_head.lora_A.weight', which nothing of spec.trainer.lora.targets takes"),
        (_narrow, r"an adapter is \(3, 5, 3\), the model makes it \(3, 32, 3\)"),
        (_of_less_rank, "has rank 2, which does not divide into adapters of rank 3 for query"),
    ],
    ids=["missing", "too many", "narrow", "of less rank than its configuration says"],
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
