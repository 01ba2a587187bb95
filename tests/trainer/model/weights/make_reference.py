"""Tiny random models of every family as Hugging Face transformers writes them, with what it computes from them.

    python -m tests.trainer.model.weights.make_reference [--check]

Needs torch and transformers, which are not in the development environment (requirements/reference.in). What it
writes is committed: tests compare with it. `--check` computes anew from the files and compares.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "reference"
ADAPTER = FOLDER / "llama-adapter"
"""An adapter of the model `llama`, written by `export_adapter`; what it computes with it, PEFT says."""
PROMPT = [3, 17, 5, 42, 8, 11, 2, 60, 33, 9, 21, 4]
GENERATED = 16

_SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}
_VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 4.0,
}
_LONG = {"long_factor": [1.0, 1.5, 2.5, 4.0]}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_parameters": _LLAMA3_ROPE},
    "llama-tied": {"model_type": "llama", "tie_word_embeddings": True},
    "mistral": {"model_type": "mistral", "sliding_window": 5},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3"},
    "gemma2": {
        "model_type": "gemma2",
        "sliding_window": 5,
        "query_pre_attn_scalar": 16,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
        "num_hidden_layers": 4,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "sliding_window": 5,
        "query_pre_attn_scalar": 16,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
        },
    },
    "gemma3-images": {
        "model_type": "gemma3",
        "text_config": {
            **_SMALL,
            "vocab_size": 96,
            "sliding_window": 5,
            "query_pre_attn_scalar": 16,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        "vision_config": _VISION,
        "mm_tokens_per_image": 4,
        "image_token_index": 90,
        "boi_token_index": 91,
        "eoi_token_index": 92,
    },
    "mistral3-images": {
        "model_type": "mistral3",
        "text_config": {**_SMALL, "model_type": "mistral"},
        "vision_config": {**_VISION, "model_type": "pixtral"},
        "image_token_index": 90,
        "tie_word_embeddings": False,
    },
    "mixtral": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "llama-yarn": {"model_type": "llama", "rope_parameters": _YARN},
    "llama-dynamic": {
        "model_type": "llama",
        "max_position_embeddings": 8,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
    },
    "gemma": {"model_type": "gemma", "hidden_act": "gelu"},
    "phi3": {"model_type": "phi3", "sliding_window": 7, "head_dim": None},
    "phi3-long": {
        "model_type": "phi3",
        "head_dim": None,
        "original_max_position_embeddings": 8,
        "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, **_LONG},
    },
    "phi4-mini": {
        "model_type": "phi3",
        "head_dim": None,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "tie_word_embeddings": True,
        "original_max_position_embeddings": 64,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
            "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        },
    },
    "olmo2": {"model_type": "olmo2", "head_dim": None},
    "smollm3": {"model_type": "smollm3", "head_dim": None, "num_hidden_layers": 4},
    "qwen2-moe": {
        "model_type": "qwen2_moe",
        "head_dim": None,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 24,
    },
    "gpt-oss": {
        "model_type": "gpt_oss",
        "num_hidden_layers": 4,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 5,
        "intermediate_size": 24,
        "rope_parameters": {**_YARN, "truncate": False},
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "head_dim": None,
        "num_hidden_layers": 3,
        "num_key_value_heads": 4,
        "rms_norm_eps": 0.01,  # the latents' norms have another
        "moe_intermediate_size": 16,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "n_group": 4,
        "topk_group": 2,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4,
        "v_head_dim": 10,
        "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.7},
    },
    "glm4-moe-lite": {
        "model_type": "glm4_moe_lite",
        "head_dim": None,
        "num_key_value_heads": 4,
        "rms_norm_eps": 0.01,
        "moe_intermediate_size": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "mlp_layer_types": ["dense", "dense", "sparse"],
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4,
        "v_head_dim": 10,
    },
    "seed-oss": {"model_type": "seed_oss", "attention_out_bias": True},
    "granite": {
        "model_type": "granite",
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.22,
        "logits_scaling": 1.5,
        "attention_multiplier": 0.2,
    },
    "ministral": {
        "model_type": "ministral",
        "sliding_window": 5,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "moonlight": {
        "model_type": "deepseek_v3",
        "head_dim": None,
        "num_key_value_heads": 4,
        "rms_norm_eps": 0.01,
        "moe_intermediate_size": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "q_lora_rank": None,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
    },
    "qwen3-moe": {
        "model_type": "qwen3_moe",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
}


def make(name: str) -> None:
    """Write one model and what it says."""
    import torch
    from transformers import AutoConfig

    torch.manual_seed(sum(map(ord, name)))
    given = dict(FAMILIES[name]) if "text_config" in FAMILIES[name] else {**_SMALL, **FAMILIES[name]}
    given = {key: value for key, value in given.items() if key != "head_dim" or value}
    config = AutoConfig.for_model(given.pop("model_type"), **given)
    model = class_of(config).from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.ndim == 1:  # norms and biases, which would be ones and zeros
                parameter.add_(0.2 * torch.randn_like(parameter))
            assert parameter.isfinite().all(), parameter_name
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("e_score_correction_bias"):
                buffer.add_(0.2 * torch.rand_like(buffer))  # above 0: releases differ for sums below
    model.save_pretrained(FOLDER / name)
    (FOLDER / name / "generation_config.json").unlink(missing_ok=True)
    (FOLDER / name / "expected.json").write_text(json.dumps(expected(FOLDER / name)) + "\n")


def class_of(config: Any) -> Any:
    """The class of transformers that loads models with this configuration."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    kinds = (AutoModelForCausalLM, AutoModelForImageTextToText)
    return next(kind for kind in kinds if type(config) in kind._model_mapping)


def expected(folder: Path, adapter: Path | None = None) -> dict[str, Any]:
    """What transformers computes from the files of a model: float32 logits [tokens, vocabulary] and greedy tokens."""
    import torch
    from transformers import AutoConfig

    kind = class_of(AutoConfig.from_pretrained(folder))
    model = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    if adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, adapter).eval()
    tokens = torch.tensor([PROMPT])
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits[0]
        if "dynamic" in str(getattr(model.config, "rope_parameters", None)):
            # Frequencies change with each token: those of the tokens before it stay as they are in the cache.
            tokens = model.generate(tokens, max_new_tokens=GENERATED, min_new_tokens=GENERATED, do_sample=False)
        for _ in range(GENERATED + len(PROMPT) - tokens.shape[1]):
            following = model(tokens, use_cache=False).logits[0, -1].argmax()
            tokens = torch.cat([tokens, following[None, None]], dim=1)
    return {"logits": logits.tolist(), "generated": tokens[0, len(PROMPT) :].tolist()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is committed, and write nothing")
    parser.add_argument("names", nargs="*", help="of models to write; all where none is named")
    options = parser.parse_args()
    if not options.check:
        for name in options.names or FAMILIES:
            make(name)
        (ADAPTER / "expected.json").write_text(json.dumps(expected(FOLDER / "llama", ADAPTER)) + "\n")
        return 0
    for name in (*FAMILIES, ADAPTER.name):
        told = json.loads((FOLDER / name / "expected.json").read_text())
        now = expected(FOLDER / "llama", ADAPTER) if name == ADAPTER.name else expected(FOLDER / name)
        worst = max(
            abs(a - b) for rows in zip(told["logits"], now["logits"], strict=True) for a, b in zip(*rows, strict=True)
        )
        if worst > 1e-4 or told["generated"] != now["generated"]:
            sys.stderr.write(f"{name}: logits differ by {worst}, or the generated tokens do\n")
            return 1
        sys.stdout.write(f"{name}: logits within {worst:.1e}, generated tokens equal\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
