"""A config.json is read as transformers reads it, or refused by the key that says another thing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.model.weights.running import is_close
from tpujob_trainer.model.config import ModelConfig
from tpujob_trainer.model.families.base import RopeScaling
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.config_json import config_json, shape_of
from tpujob_trainer.model.weights.known_keys import CONFIGS as FAMILY_CONFIGS
from tpujob_trainer.model.weights.known_keys import ROPE_KEYS
from tpujob_trainer.values.errors import ConfigurationError

PUBLISHED = Path(__file__).parent / "published"
"""config.json of google/gemma-3-4b-it and of deepseek-ai/DeepSeek-V3, as they are on the hub."""
GEMMA3_4B: dict[str, Any] = json.loads((PUBLISHED / "gemma-3-4b-it.json").read_text())
DEEPSEEK_V3: dict[str, Any] = json.loads((PUBLISHED / "DeepSeek-V3.json").read_text())
GEMMA3_12B = {
    "hidden_size": 3840,
    "intermediate_size": 15360,
    "num_attention_heads": 16,
    "num_hidden_layers": 48,
    "num_key_value_heads": 8,
}
GEMMA3_27B = {
    "head_dim": 128,
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_hidden_layers": 62,
    "num_key_value_heads": 16,
    "query_pre_attn_scalar": 168,
}
"""What their text_config says otherwise."""
_QWEN3 = {
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 5120,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3_14B = {"intermediate_size": 17408, "max_window_layers": 40, "num_attention_heads": 40, "num_hidden_layers": 40}
QWEN3_32B = {"intermediate_size": 25600, "max_window_layers": 64, "num_attention_heads": 64, "num_hidden_layers": 64}
"""Qwen/Qwen3-14B and Qwen3-32B config.json: what both say, and what each says."""
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
_LLAMA3 = _YARN | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def shape(given: dict[str, Any], ignored: tuple[str, ...] = ()) -> ModelShape:
    return shape_of(given, "config.json", remat="full", compute_dtype="float32", ignored=ignored)


def small(model_type: str, **more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    if model_type in ("deepseek_v3", "glm4_moe_lite"):
        sizes["num_key_value_heads"] = 4
    return {"model_type": model_type, **sizes, **more}


@pytest.mark.parametrize(
    ("changed", "parameters"), [({}, 3_880_263_168), (GEMMA3_12B, 11_766_034_176), (GEMMA3_27B, 27_009_346_304)]
)
def test_text_config_of_gemma_3_has_what_it_leaves_out_from_its_class(changed, parameters):
    given = {**GEMMA3_4B, "text_config": {**GEMMA3_4B["text_config"], **changed}}

    found = shape(given)

    assert found.num_parameters == parameters
    assert (found.rope_theta, found.local_rope_theta, found.global_every) == (1e6, 1e4, 6)
    made = config_json(found, dtype="bfloat16", max_positions=1, source=given)
    assert made == {**given, "dtype": "bfloat16", "text_config": made["text_config"]}
    assert made["text_config"] == {**given["text_config"], "dtype": "bfloat16", "torch_dtype": "bfloat16"}
    assert is_close(shape(made), found)


@pytest.mark.parametrize(
    ("name", "changed"), [("gemma3-4b", {}), ("gemma3-12b", GEMMA3_12B), ("gemma3-27b", GEMMA3_27B)]
)
def test_published_gemma_3_is_the_preset(name, changed):
    preset = ModelConfig(preset=name).resolve(vocabulary=2, platform="cpu")
    assert is_close(shape({**GEMMA3_4B, "text_config": {**GEMMA3_4B["text_config"], **changed}}), preset)


@pytest.mark.parametrize(("name", "changed"), [("qwen3-14b", QWEN3_14B), ("qwen3-32b", QWEN3_32B)])
def test_published_qwen_3_is_the_preset(name, changed):
    preset = ModelConfig(preset=name).resolve(vocabulary=2, platform="cpu")
    assert is_close(shape({"model_type": "qwen3", **_QWEN3, **changed}), preset)


def test_published_deepseek_v3_is_the_preset():
    preset = ModelConfig(preset="deepseek-v3").resolve(vocabulary=2, platform="cpu")
    assert is_close(shape(DEEPSEEK_V3), preset)
    again = config_json(preset, dtype="bfloat16", max_positions=4096)
    assert is_close(shape(again), preset)
    assert again["rope_scaling"]["mscale_all_dim"] == 1
    of_source = config_json(preset, dtype="bfloat16", max_positions=4096, source=DEEPSEEK_V3)
    assert is_close(shape(of_source), preset)
    # The layer that predicts a second token is not read, so it is not there.
    assert of_source["num_nextn_predict_layers"] == 0


@pytest.mark.parametrize("model_type", FAMILY_CONFIGS)
def test_what_a_fresh_model_writes_is_read_as_the_same(model_type):
    made = shape(small(model_type))
    written = config_json(made, dtype="float32", max_positions=128, ids={"bos_token_id": None, "eos_token_id": 5})

    assert is_close(shape(written), made)
    assert written["eos_token_id"] == 5
    assert FAMILY_CONFIGS[model_type].defaults.keys() - written.keys() <= {"layer_types"}
    assert ("layer_types" in written) == FAMILY_CONFIGS[model_type].has_layer_types
    assert type(written.get("query_pre_attn_scalar", 1)) is int


@pytest.mark.parametrize(
    ("family", "more", "message"),
    [
        ("llama", {"window": 8}, r"model\.window: LlamaForCausalLM of transformers has no window"),
        ("mistral", {"window": 8, "global_every": 2}, r"model\.globalEvery: MistralForCausalLM"),
        (
            "gemma3_text",
            {"rope_scaling": RopeScaling(kind="yarn", factor=2.0, truncate=False)},
            r"model\.ropeScaling\.truncate: Gemma3ForCausalLM of transformers ignores it; leave it out",
        ),
    ],
)
def test_what_transformers_cannot_say_is_refused(family, more, message):
    made = dataclasses.replace(shape(small(family)), **more)
    with pytest.raises(ConfigurationError, match=message):
        config_json(made, dtype="float32", max_positions=128)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (small("mixtral"), {"rope_theta": 1e6, "window": None, "norm_eps": 1e-5}),
        (small("mistral"), {"rope_theta": 1e4, "window": 4096, "mlp_dim": 14336}),
        (small("llama", rope_parameters={"rope_type": "default"}, rope_theta=7.0), {"rope_theta": 7.0}),
        (
            small("llama", rope_parameters={"rope_theta": 5.0}, rope_scaling={"type": "linear", "factor": 2}),
            {"rope_theta": 1e4, "rope_scaling.factor": 2.0},
        ),
        (small("llama", attn_logit_softcapping=5.0, sliding_window=3), {"attention_softcap": None, "window": None}),
        (small("qwen2", sliding_window=3), {"window": None}),
        (small("qwen3", sliding_window=3, use_sliding_window=True), {"window": None}),
        (small("qwen3", sliding_window=3, use_sliding_window=True, max_window_layers=0), {"window": 3}),
        (small("qwen3", head_dim=None), {"head_dim": 8}),
        (small("gemma2"), {"query_scale": 256**-0.5, "window": 4096, "attention_softcap": 50.0, "global_every": 2}),
        (small("gemma2", attn_logit_softcapping=None), {"attention_softcap": None}),
        (small("gemma3_text", attn_logit_softcapping=2.0, final_logit_softcapping=3.0), {"attention_softcap": None}),
        (small("gemma3_text", sliding_window_pattern=2), {"global_every": 2, "local_rope_theta": 1e4}),
        (small("gemma3_text", hidden_activation="silu"), {"activation": "silu"}),
        (small("llama", hidden_act="gelu_pytorch_tanh"), {"activation": "gelu"}),
        (small("qwen3_moe", num_local_experts=16), {"experts": 16, "norm_topk": False}),
        (small("gemma", hidden_act="gelu"), {"activation": "gelu"}),
        (small("smollm3"), {"unturned_every": 4, "rope_theta": 2e6}),
        (small("smollm3", no_rope_layers=[0, 1, 1, 1]), {"turned_layers": (False, True, True, True)}),
        (small("phi3", partial_rotary_factor=0.75), {"rotary_dim": 6}),
        (small("deepseek_v3", num_local_experts=16), {"experts": 16}),
        (small("deepseek_v3", num_experts=16), {"experts": 256}),
        (
            small("llama", max_position_embeddings=64, rope_scaling={"rope_type": "yarn", "factor": 2}),
            {"rope_scaling.kind": "yarn", "rope_scaling.original_length": 64, "rope_scaling.beta_fast": 32.0},
        ),
        # Beside the mapping, the length takes precedence, except where mappings are nested by the kind of layer.
        (
            small("llama", rope_scaling=_LLAMA3, original_max_position_embeddings=32),
            {"rope_scaling.original_length": 32},
        ),
        (
            small("qwen2", rope_parameters=_YARN, original_max_position_embeddings=32),
            {"rope_scaling.original_length": 32},
        ),
        (
            small("gemma3_text", rope_scaling=_YARN, original_max_position_embeddings=32),
            {"rope_scaling.original_length": 8},
        ),
        (
            small("gpt_oss", rope_parameters=None),
            {"rope_theta": 150_000.0, "rope_scaling.kind": "yarn", "rope_scaling.truncate": False},
        ),
        (small("gpt_oss", rope_parameters={}), {"rope_theta": 150_000.0, "rope_scaling": None}),
    ],
)
def test_keys_have_the_effect_that_they_have_in_transformers(given, expected):
    found = dataclasses.asdict(shape(given))
    for name, value in expected.items():
        key, _, inner = name.partition(".")
        assert (found[key][inner] if inner else found[key]) == value, name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (small("llama", is_causal=False), r"is_causal may change numbers.*`model\.ignoreConfigKeys: \[is_causal\]`"),
        (small("llama", is_causal=None), r"is_causal may change numbers and tpujob does not know it"),
        (small("deepseek_v3", rope_scaling="linear"), r"rope_scaling is 'linear', not a mapping"),
        (small("gemma3_text", rope_parameters={"full_attention": 5}), r"full_attention is 5, not a mapping"),
        (small("gemma2", hidden_activation="gelu"), r"hidden_activation is 'gelu'; gelu_pytorch_tanh or gelu_new is"),
        (small("llama", hidden_act="relu"), r"hidden_act is 'relu'; silu or swish is supported"),
        (small("qwen2", layer_types=["sliding"] * 4), r"layer_types is .*; name full_attention or sliding_attention"),
        (small("mistral", layer_types=["full_attention"] * 4), r"makes it another model than mistral; leave it out"),
        (small("qwen3", sliding_window=3, use_sliding_window=True, max_window_layers=2), r"at equal distances"),
        (small("qwen3_moe", decoder_sparse_step=2), r"decoder_sparse_step is 2; .*only 1 is supported"),
        (small("phi3", rope_scaling={"rope_type": "linear", "factor": 2.0}), r"is none of default, longrope, su, yarn"),
        (small("glm4_moe_lite", mlp_layer_types=["sparse", "dense"] * 2), r"mlp_layer_types is .*; name dense for the"),
        (small("granite", residual_multiplier=0), r"residual_multiplier is 0, not a number above 0"),
        (small("phi3", full_attn_mod=2), r"full_attn_mod is 2; with model_type phi3, only 1 is supported"),
        (small("qwen3_moe", use_qk_norm=False), r"use_qk_norm is False; .*only True is supported"),
        (small("phi3", partial_rotary_factor=0.4), r"partial_rotary_factor is 0\.4, which turns 3 of 8 numbers"),
        (small("smollm3", no_rope_layers=[1, 2, 1, 1]), r"no_rope_layers is .*; give 1 \(with positions\) or 0"),
        (small("llama", quantization_config={"quant_method": "fp8"}), r"the weights are quantized \(fp8\)"),
        (small("llama", rope_scaling={"rope_type": "su"}), r"rope_type 'su' is none of default, linear, dynamic, yarn"),
        (small("gemma3_text", rope_parameters={"rope_theta": 1.0}), r"rope_parameters\.rope_theta: gemma3_text has"),
        (small("gemma3_text", rope_scaling={"type": "linear", "factor": 2.0}), r"rope_scaling has no rope_type"),
        (
            small("gemma3_text", rope_parameters={"full_attention": _YARN | {"truncate": False}}),
            r"truncate is False; of gemma3_text, releases of transformers read it differently",
        ),
        (small("gemma2", final_logit_softcapping=0), r"final_logit_softcapping is 0, not a number above 0"),
        (small("deepseek_v3", num_key_value_heads=2), r"kvHeads: 2; the family deepseek-v3 has as many as heads \(4\)"),
        (small("deepseek_v3", head_dim=192), r"head_dim is 192, and qk_rope_head_dim 64; make them the same"),
        (small("deepseek_v3", qk_rope_head_dim=7, qk_nope_head_dim=9), r"headDim: positions turn 7 of its 16 numbers"),
        (small("deepseek_v3", scoring_func="softmax"), r"scoring_func is 'softmax'; .*only 'sigmoid' is supported"),
        (small("deepseek_v3", topk_method="greedy"), r"topk_method is 'greedy'; .*only 'noaux_tc' is supported"),
        (small("deepseek_v3", n_group=7), r"experts: 256 do not divide into 7 groups of two or more"),
        (small("deepseek_v3", n_group=256), r"experts: 256 do not divide into 256 groups of two or more"),
        (small("deepseek_v3", topk_group=9), r"expertsPerToken: 8 are chosen from 9 of 8 groups"),
        (
            small("deepseek_v3", n_group=128, topk_group=3),
            r"8 are chosen from 3 of 128 groups of 2 experts, which have",
        ),
        (small("deepseek_v3", first_k_dense_replace=4), r"layers: 4, and the first 4 have no experts; give more"),
        (small("deepseek_v3", first_k_dense_replace=None), r"first_k_dense_replace is None, not a whole number from 0"),
        (
            small("deepseek_v3", rope_scaling={"rope_type": "linear", "factor": 2.0, "mscale_all_dim": 1.0}),
            r"mscale_all_dim is 1\.0, which is supported beside rope_type yarn, not 'linear'",
        ),
        ({**GEMMA3_4B, "tie_word_embeddings": False}, r"tie_word_embeddings is False, and True in text_config"),
        (
            {**GEMMA3_4B, "model_type": "llava"},
            r"model_type 'llava' is none of deepseek_v3, gemma, gemma2, gemma3, gemma3_text, glm4_moe_lite",
        ),
    ],
)
def test_what_means_another_model_is_refused_by_its_key(given, message):
    with pytest.raises(ConfigurationError, match=message):
        shape(given)


@pytest.mark.parametrize("model_type", FAMILY_CONFIGS)
def test_values_of_other_types_are_read_or_refused(model_type):
    for key in {*FAMILY_CONFIGS[model_type].defaults, *ROPE_KEYS, "original_max_position_embeddings"}:
        for value in ("linear", 5, -1, 1.5, True, None, [], [5], {}, {"linear": 5}, 10**400, float("nan")):
            given = small(model_type, rope_scaling={"rope_type": "yarn", "factor": 2.0}) | {key: value}
            with contextlib.suppress(ConfigurationError):
                shape(given)


def test_keys_of_published_files_that_mean_nothing_here_are_read_over():
    beside = {"use_mrope": False, "is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {}}
    assert shape(small("llama", **beside)) == shape(small("llama"))
    of_gemma_2_9b = {"hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid", "sliding_window_size": 4096}
    assert shape(small("gemma2", **of_gemma_2_9b)) == shape(small("gemma2"))


def test_keys_of_published_files_that_say_what_the_class_does_are_read_over():
    """Phi-4-mini, Qwen3-Coder-30B-A3B and Mistral Small 3.1 have them."""
    assert shape(small("phi3", full_attn_mod=1)) == shape(small("phi3"))
    assert shape(small("qwen3_moe", use_qk_norm=True)) == shape(small("qwen3_moe"))
    of_projector = {
        "multimodal_projector_bias": False,
        "projector_hidden_act": "gelu",
        "spatial_merge_size": 2,
        "vision_feature_layer": -1,
    }
    decoder = small("mistral", sliding_window=None)
    assert shape({"model_type": "mistral3", "text_config": decoder, **of_projector}) == shape(decoder)


@pytest.mark.parametrize(
    ("given", "other"),
    [
        ({**DEEPSEEK_V3, "model_type": "kimi_k2"}, DEEPSEEK_V3),
        (small("ministral"), small("mistral")),
        (small("ministral", layer_types=["full_attention"] * 4), small("mistral", sliding_window=None)),
        (
            small("seed_oss", attention_bias=False, head_dim=None, rms_norm_eps=1e-5, vocab_size=9),
            small("llama", intermediate_size=27648, rms_norm_eps=1e-5, vocab_size=9),
        ),
        (
            {**DEEPSEEK_V3, "model_type": "glm4_moe_lite", "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 58},
            DEEPSEEK_V3,
        ),
    ],
)
def test_the_same_model_may_have_another_name(given, other):
    made, expected = shape(given), shape(other)
    assert dataclasses.replace(made, family=expected.family) == expected


def test_somebody_can_decide_to_go_on_without_a_key():
    assert shape(small("llama", is_causal=True), ignored=("is_causal",)) == shape(small("llama"))
