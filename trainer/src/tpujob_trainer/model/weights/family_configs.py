"""What the config.json of each family may hold, and what transformers takes where a key is left out.

A key is honoured (`config_json` reads it), without effect on what the model computes, allowed with some values only, or
unknown, which is refused. The defaults are those of the configuration classes of transformers 5.23, their fields in
whole: what a family's table lacks, its class does not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SILU, GELU = ("silu", "swish"), ("gelu_pytorch_tanh", "gelu_new")
"""By how transformers calls them."""
ACTIVATIONS = dict.fromkeys(SILU, "silu") | dict.fromkeys(GELU, "gelu")


@dataclass(frozen=True, kw_only=True)
class FamilyConfig:
    """Of one `model_type`."""

    family: str
    """Ours."""
    architecture: str
    theta: float = 10_000.0
    """Base of the rotary frequencies where none is given."""
    activation_key: str = "hidden_act"
    experts_key: str | None = None
    has_layer_types: bool = False
    """The class reads `layer_types`."""
    defaults: Mapping[str, Any]
    """All keys that the class reads, but those of rotary positions."""
    only: Mapping[str, tuple[Any, ...]]
    """Values of keys whose others mean something that is not computed here."""


_COMMON = {
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "use_cache": True,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "pad_token_id": None,
}
_LLAMA_IDS = {"bos_token_id": 1, "eos_token_id": 2}
_MISTRAL = (
    _COMMON
    | _LLAMA_IDS
    | {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": None,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    }
)
_QWEN = (
    _COMMON
    | dict.fromkeys(("bos_token_id", "eos_token_id"))
    | {
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "use_sliding_window": False,
        "sliding_window": 4096,
    }
)
_EXPERTS = {"output_router_logits": False, "router_aux_loss_coef": 0.001}
_GEMMA = {key: value for key, value in _COMMON.items() if key != "hidden_act"} | {
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "tie_word_embeddings": True,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "attention_bias": False,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "layer_types": None,
    "use_bidirectional_attention": False,
}
_NO_BIAS = {"attention_bias": (False,)}

FAMILY_CONFIGS: dict[str, FamilyConfig] = {
    "llama": FamilyConfig(
        family="llama",
        architecture="LlamaForCausalLM",
        defaults=_COMMON
        | _LLAMA_IDS
        | {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": None,
            "head_dim": None,
            "max_position_embeddings": 2048,
            "attention_bias": False,
            "mlp_bias": False,
            "pretraining_tp": 1,
        },
        only=_NO_BIAS | {"mlp_bias": (False,)},
    ),
    "mistral": FamilyConfig(family="mistral", architecture="MistralForCausalLM", defaults=_MISTRAL, only={}),
    "mixtral": FamilyConfig(
        family="mixtral",
        architecture="MixtralForCausalLM",
        theta=1_000_000.0,
        experts_key="num_local_experts",
        defaults=_MISTRAL
        | _EXPERTS
        | {
            "rms_norm_eps": 1e-5,
            "sliding_window": None,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "router_jitter_noise": 0.0,
        },
        only={},
    ),
    "qwen2": FamilyConfig(
        family="qwen2",
        architecture="Qwen2ForCausalLM",
        has_layer_types=True,
        defaults=_QWEN | {"max_window_layers": 28, "layer_types": None},
        only={},
    ),
    "qwen3": FamilyConfig(
        family="qwen3",
        architecture="Qwen3ForCausalLM",
        has_layer_types=True,
        defaults=_QWEN | {"max_window_layers": 28, "layer_types": None, "head_dim": 128, "attention_bias": False},
        only=_NO_BIAS,
    ),
    "qwen3_moe": FamilyConfig(
        family="qwen3-moe",
        architecture="Qwen3MoeForCausalLM",
        experts_key="num_experts",
        defaults=_QWEN
        | _EXPERTS
        | {
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 24,
            "num_key_value_heads": 4,
            "attention_bias": False,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "norm_topk_prob": False,
        },
        only=_NO_BIAS | {"norm_topk_prob": (True,), "decoder_sparse_step": (1,), "mlp_only_layers": ([], None)},
    ),
    "gemma2": FamilyConfig(
        family="gemma2",
        architecture="Gemma2ForCausalLM",
        activation_key="hidden_activation",
        has_layer_types=True,
        defaults=_GEMMA
        | {
            "vocab_size": 256000,
            "max_position_embeddings": 8192,
            "final_logit_softcapping": 30.0,
            "attn_logit_softcapping": 50.0,
        },
        only=_NO_BIAS | {"use_bidirectional_attention": (False, None)},
    ),
    "gemma3_text": FamilyConfig(
        family="gemma3",
        architecture="Gemma3ForCausalLM",
        theta=1_000_000.0,
        activation_key="hidden_activation",
        has_layer_types=True,
        defaults=_GEMMA
        | {
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
            "final_logit_softcapping": None,
            "attn_logit_softcapping": None,
        },
        only=_NO_BIAS | {"use_bidirectional_attention": (False, None)},
    ),
}
"""By `model_type`."""

TEXT_OF = {"gemma3": "gemma3_text", "mistral3": "mistral"}
"""Of models that also see images, the `model_type` of the part in `text_config`."""

ROPE_KEYS = {"rope_parameters", "rope_scaling", "rope_theta"}

_WITHOUT_EFFECT = {
    *("architectures", "auto_map", "model_type", "transformers_version", "_name_or_path", "_commit_hash"),
    *("dtype", "torch_dtype", "_attn_implementation", "_attn_implementation_autoset", "attn_implementation"),
    *("id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params"),
    *("output_attentions", "output_hidden_states", "return_dict", "return_dict_in_generate", "output_scores"),
    *("torchscript", "use_return_dict", "chunk_size_feed_forward", "unsloth_version", "unsloth_fixed", "prefix"),
    *("temperature", "top_k", "top_p", "typical_p", "do_sample", "num_beams", "num_beam_groups", "max_length"),
    *("min_length", "early_stopping", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "bad_words_ids"),
    *("encoder_no_repeat_ngram_size", "diversity_penalty", "num_return_sequences", "forced_bos_token_id"),
    *("forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens"),
    *("begin_suppress_tokens", "decoder_start_token_id", "sep_token_id", "cache_implementation", "tokenizer_class"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "boi_token_index", "eoi_token_index", "image_token_index"),
    *("tf_legacy_loss", "use_bfloat16", "max_new_tokens", "is_llama_config", "transformers.js_config"),
    "sliding_window_size",
    *("image_token_id", "mm_tokens_per_image", "vision_config", "text_config", "max_position_embeddings"),
}
_NEVER: dict[str, tuple[Any, ...]] = {
    "is_encoder_decoder": (False,),
    "cross_attention_hidden_size": (None,),
    "add_cross_attention": (False,),
    "tie_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
    "is_decoder": (False,),
    "use_mrope": (False,),
    "rope_interleaved": (False,),
    "partial_rotary_factor": (1.0, None),
}
"""Keys of all families, where other values mean another model."""

_OF_OTHERS = {key for each in FAMILY_CONFIGS.values() for key in each.defaults} | {"sliding_window_pattern"}
"""A class ignores what only others read."""


def problem_with_keys(given: Mapping[str, Any], model_type: str, ignored: tuple[str, ...]) -> str | None:
    """Why a config.json is refused for one of its keys; None: every one is known, with a value that is.

    Args:
        given: its content, or its `text_config`.
        model_type: of the table.
        ignored: keys that somebody decided to go on without.
    """
    of_family = FAMILY_CONFIGS[model_type]
    known = _WITHOUT_EFFECT | ROPE_KEYS | _OF_OTHERS | {"hidden_act", "hidden_activation", "rope_local_base_freq"}
    if model_type == "gemma3_text":
        known = known | {"_sliding_window_pattern"}
    for key, value in given.items():
        allowed = of_family.only.get(key) or _NEVER.get(key)
        if key in ignored:
            continue
        if key == "quantization_config" and value is not None:
            method = value.get("quant_method") if isinstance(value, Mapping) else value
            return f"the weights are quantized ({method}), which is not read; take the folder with bfloat16 weights"
        if allowed is not None and value not in allowed:
            return f"{key} is {value!r}; with model_type {model_type}, only {_words(allowed)} is supported"
        if allowed is None and key not in known and value is not None:
            return (
                f"{key} may change numbers and tpujob does not know it; `model.ignoreConfigKeys: [{key}]` goes on "
                "without it"
            )
    for key, allowed in of_family.only.items():
        if key not in given and of_family.defaults[key] not in allowed:
            return f"{key} is missing, which means {of_family.defaults[key]!r}; only {_words(allowed)} is supported"
    return None


def _words(allowed: tuple[Any, ...]) -> str:
    return " or ".join(repr(value) for value in allowed if value is not None)
