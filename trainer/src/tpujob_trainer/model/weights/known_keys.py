"""The tensors and the known keys of config.json for each family: an unknown key may change results, and is refused."""

from collections.abc import Iterator, Mapping
from typing import Any

from tpujob_trainer.model.families import FAMILIES
from tpujob_trainer.model.families.base import ConfigJson, Tensor
from tpujob_trainer.model.families.tensors import layer_tensors
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.quantized_files import problem_with_quantization

EMBEDDING, OUTPUT = "embed_tokens.weight", "lm_head.weight"


def tensors(shape: ModelShape, *, prefix: str = "model.", output: str = OUTPUT) -> Iterator[Tensor]:
    """Yields all weights of a decoder.

    Args:
        shape: of the decoder.
        prefix: of all names except that of the output projection, `model.` in text models.
        output: name of the output projection.
    """
    yield Tensor(("embedding",), f"{prefix}{EMBEDDING}", "VD", "V D")
    yield Tensor(("norm", "scale"), f"{prefix}norm.weight", "D", "D")
    if not shape.tie_embeddings:
        yield Tensor(("output",), output, "DV", "V D")
    of_layer = FAMILIES[shape.family].layer_tensors or layer_tensors
    yield from of_layer(shape, f"{prefix}layers.{{layer}}.")


CONFIGS: dict[str, ConfigJson] = {each.config.model_type: each.config for each in FAMILIES.values()}
"""By `model_type`."""
FAMILY_OF: dict[str, str] = {each.config.model_type: name for name, each in FAMILIES.items()}

TEXT_OF = {"gemma3": "gemma3_text", "mistral3": "mistral"}
"""For models with images: the `model_type` of the part in `text_config`."""

SAME_AS = {"kimi_k2": "deepseek_v3"}
"""For names that only published code has: the `model_type` that the model has in transformers."""

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
    *(
        "sliding_window_size",
        "embd_layer",
        "img_processor",
        "interpolate_factor",
        "initial_context_length",
        "experts_per_token",
    ),
    *("multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size", "vision_feature_layer"),
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
"""Supported values of keys of all families; other values mean another model."""

_OF_OTHERS = {key for each in CONFIGS.values() for key in each.defaults} | {"sliding_window_pattern"}
"""Keys that a class may have without effect: it ignores those that only other classes read."""


def problem_with_keys(given: Mapping[str, Any], model_type: str, ignored: tuple[str, ...]) -> str | None:
    """Why a config.json is refused for one of its keys; None: all keys and values are supported.

    Args:
        given: its content, or its `text_config`.
        model_type: a key of `CONFIGS`.
        ignored: keys to ignore.
    """
    config = CONFIGS[model_type]
    known = _WITHOUT_EFFECT | ROPE_KEYS | _OF_OTHERS | {"hidden_act", "hidden_activation", "rope_local_base_freq"}
    known = known.union(config.without_effect)
    if model_type == "gemma3_text":
        known = known | {"_sliding_window_pattern"}
    for key, value in given.items():
        allowed = config.only.get(key) or _NEVER.get(key)
        if key == "partial_rotary_factor" and config.has_partial_rotary:
            allowed, known = None, known | {key}
        if key in ignored:
            continue
        if key == "quantization_config" and value is not None:
            if (problem := problem_with_quantization(value)) is not None:
                return problem
            continue
        if allowed is not None and value not in allowed:
            return f"{key} is {value!r}; with model_type {model_type}, only {_words(allowed)} is supported"
        if allowed is None and key not in known:
            return (
                f"{key} may change numbers and tpujob does not know it; `model.ignoreConfigKeys: [{key}]` goes on "
                "without it"
            )
    for key, allowed in config.only.items():
        if key not in given and key in config.defaults and config.defaults[key] not in allowed:
            return f"{key} is missing, which means {config.defaults[key]!r}; only {_words(allowed)} is supported"
    return None


def _words(allowed: tuple[Any, ...]) -> str:
    return " or ".join(repr(value) for value in allowed if value is not None)
