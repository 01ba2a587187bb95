"""gpt-oss: a mixture with attention sinks, biases and clamped gates (OpenAI 2025, section 2).

Every other layer has a sliding window; rotary frequencies are scaled by YaRN. Gate and up projections of an expert
alternate in one stored matrix.
"""

from collections.abc import Iterator
from typing import Any

from tpujob_trainer.model.families import tensors
from tpujob_trainer.model.families.base import ConfigJson, Family, Preset, RopeScaling, Tensor
from tpujob_trainer.model.families.keys import COMMON, EXPERTS, alternating, flag, positive

_YARN = RopeScaling(kind="yarn", factor=32.0, original_length=4096, truncate=False)


def _tensors(shape: Any, layer: str) -> Iterator[Tensor]:
    yield from tensors.norms(shape, layer)
    yield from tensors.attention(shape, layer)
    attention, experts = ("layers", "attention"), ("layers", "experts")
    yield Tensor((*attention, "sinks"), f"{layer}self_attn.sinks", "N", "N")
    block = f"{layer}mlp."
    yield Tensor((*experts, "router"), f"{block}router.weight", "DE", "E D")
    yield Tensor((*experts, "router_bias"), f"{block}router.bias", "E", "E")
    yield Tensor((*experts, "gate_up"), f"{block}experts.gate_up_proj", "EDFP", "E D FP")
    yield Tensor((*experts, "gate_up_bias"), f"{block}experts.gate_up_proj_bias", "EFP", "E FP")
    yield Tensor((*experts, "down"), f"{block}experts.down_proj", "EFD", "E F D")
    yield Tensor((*experts, "down_bias"), f"{block}experts.down_proj_bias", "ED", "E D")


def _read(given: Any) -> dict[str, Any]:
    bias = flag(given, "attention_bias")
    return {
        "qkv_bias": bias,
        "out_bias": bias,
        "swiglu_alpha": positive(given, "swiglu_alpha"),
        "swiglu_limit": positive(given, "swiglu_limit"),
    }


def _write(shape: Any) -> dict[str, Any]:
    return {
        "attention_bias": shape.qkv_bias,
        "swiglu_alpha": shape.swiglu_alpha,
        "swiglu_limit": shape.swiglu_limit,
    }


def _preset(layers: int, experts: int) -> Preset:
    return Preset(
        family="gpt-oss",
        layers=layers,
        embed_dim=2880,
        heads=64,
        kv_heads=8,
        head_dim=64,
        mlp_dim=2880,
        vocab_size=201_088,
        rope_theta=150_000.0,
        sequence_length=4096,
        batch_tokens=2**22,
        traits={"experts": experts},
    )


GPT_OSS = Family(
    name="gpt-oss",
    traits={
        "qkv_bias": True,
        "out_bias": True,
        "sinks": True,
        "experts": 32,
        "experts_per_token": 4,
        "experts_bias": True,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
        "window": 128,
        "global_every": 2,
        "rope_scaling": _YARN,
    },
    config=ConfigJson(
        model_type="gpt_oss",
        architecture="GptOssForCausalLM",
        theta=150_000.0,
        experts_key="num_local_experts",
        has_layer_types=True,
        usual_layer_types=alternating,
        defaults=COMMON
        | EXPERTS
        | {
            "num_hidden_layers": 36,
            "num_local_experts": 128,
            "vocab_size": 201088,
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "head_dim": 64,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "sliding_window": 128,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "num_experts_per_tok": 4,
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
            "layer_types": None,
            "bos_token_id": None,
            "eos_token_id": None,
            "attention_bias": True,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 32.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 4096,
            },
        },
        read=_read,
        write=_write,
    ),
    layer_tensors=_tensors,
    # openai/gpt-oss-20b and gpt-oss-120b config.json; mlp_dim is that of one expert.
    presets={"gpt-oss-20b": _preset(24, 32), "gpt-oss-120b": _preset(36, 128)},
)
