"""DeepSeek-V3: latent attention, and a mixture whose router chooses by sigmoids (DeepSeek-AI 2024).

The first layers have a single block. After the last layer, files may have layers that predict further tokens
(`num_nextn_predict_layers`); they are not read, because transformers ignores them, too.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from tpujob_trainer.model.families import tensors
from tpujob_trainer.model.families.base import (
    ConfigJson,
    Family,
    Latent,
    Preset,
    RopeScaling,
    SigmoidRouter,
    Tensor,
)
from tpujob_trainer.model.families.keys import COMMON, NO_BIAS, flag, mapping, positive, whole

_ATTENTION = {
    "key_value_up": ("kv_b_proj.weight", "RNH", "NH R"),
    "out": ("o_proj.weight", "NVD", "D NV"),
}
_QUERY = {"query": ("q_proj.weight", "DNH", "NH D")}
_QUERY_BY_LATENT = {
    "query_down": ("q_a_proj.weight", "DR", "R D"),
    "query": ("q_b_proj.weight", "RNH", "NH R"),
}
_NORMS = {"key_value_norm": "kv_a_layernorm"}
_QUERY_NORM = {"query_norm": "q_a_layernorm"}


def _tensors(shape: Any, layer: str) -> Iterator[Tensor]:
    for stack in shape.stacks:
        for tensor in _of_stack(stack.shape, stack.name, layer):
            yield dataclasses.replace(tensor, layers=range(stack.first, stack.end))


def _of_stack(shape: Any, stack: str, layer: str) -> Iterator[Tensor]:
    for tensor in tensors.norms(shape, layer):
        yield dataclasses.replace(tensor, path=(stack, *tensor.path[1:]))
    yield from _attention(shape, (stack, "attention"), f"{layer}self_attn.")
    block = f"{layer}mlp."
    if not shape.experts:
        yield from tensors.feed_forward((stack, "mlp"), block)
        return
    yield from tensors.experts(block)
    yield Tensor((stack, "experts", "router_bias"), f"{block}gate.e_score_correction_bias", "E", "E", is_wide=True)
    yield from tensors.feed_forward((stack, "experts", "shared"), f"{block}shared_experts.", wide="S")


def _attention(shape: Any, path: tuple[str, ...], block: str) -> Iterator[Tensor]:
    has_rank = shape.latent.query_rank is not None
    for ours, (name, our_axes, their_axes) in (_ATTENTION | (_QUERY_BY_LATENT if has_rank else _QUERY)).items():
        yield Tensor((*path, ours), f"{block}{name}", our_axes, their_axes)
    for ours, name in (_NORMS | (_QUERY_NORM if has_rank else {})).items():
        yield Tensor((*path, ours, "scale"), f"{block}{name}.weight", "R", "R")
    rank, name = shape.latent.rank, f"{block}kv_a_proj_with_mqa.weight"
    rows = rank + shape.rotary_dim
    yield Tensor((*path, "key_value_down"), name, "DR", "R D", rows=rows)
    yield Tensor((*path, "turned"), name, "DT", "T D", first=rank, rows=rows)


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    plain, turned = whole(given, "qk_nope_head_dim"), whole(given, "qk_rope_head_dim")
    if given.get("head_dim", turned) != turned:
        raise ValueError(f"head_dim is {given['head_dim']}, and qk_rope_head_dim {turned}; make them the same")
    mlp_dim = whole(given, "moe_intermediate_size")
    dense = given["first_k_dense_replace"]
    if type(dense) is not int or dense < 0:
        raise ValueError(f"first_k_dense_replace is {dense!r}, not a whole number from 0")
    return {
        "head_dim": plain + turned,
        "rotary_dim": turned,
        "latent": Latent(
            query_rank=None if given["q_lora_rank"] is None else whole(given, "q_lora_rank"),
            rank=whole(given, "kv_lora_rank"),
            value_dim=whole(given, "v_head_dim"),
            adjacent_pairs=flag(given, "rope_interleave"),
            score_factor=_score_factor(given),
        ),
        "sigmoid_router": SigmoidRouter(
            groups=whole(given, "n_group"),
            groups_per_token=whole(given, "topk_group"),
            scale=positive(given, "routed_scaling_factor"),
        ),
        "norm_topk": flag(given, "norm_topk_prob"),
        "shared_mlp_dim": whole(given, "n_shared_experts") * mlp_dim,
        "dense_layers": dense,
        "dense_mlp_dim": whole(given, "intermediate_size") if dense else None,
    }


def _score_factor(given: Mapping[str, Any]) -> float:
    """The square of YaRN's factor for `mscale_all_dim`; transformers, `yarn_apply_mscale`."""
    rope = mapping(given, "rope_scaling") or mapping(given, "rope_parameters")
    weight = rope.get("mscale_all_dim")
    if not weight:
        return 1.0
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("yarn", "default"):
        raise ValueError(f"mscale_all_dim is {weight}, which is supported beside rope_type yarn, not {kind!r}")
    if kind == "default":
        return 1.0
    factor = positive(rope, "factor")
    return (0.1 * positive(rope, "mscale_all_dim") * math.log(factor) + 1.0) ** 2 if factor > 1 else 1.0


def _write(shape: Any) -> dict[str, Any]:
    latent, router, shared = shape.latent, shape.sigmoid_router, shape.shared_mlp_dim // shape.mlp_dim
    return {
        "qk_nope_head_dim": shape.head_dim - shape.rotary_dim,
        "qk_rope_head_dim": shape.rotary_dim,
        "head_dim": shape.rotary_dim,
        "v_head_dim": latent.value_dim,
        "q_lora_rank": latent.query_rank,
        "kv_lora_rank": latent.rank,
        "rope_interleave": latent.adjacent_pairs,
        "n_group": router.groups,
        "topk_group": router.groups_per_token,
        "routed_scaling_factor": router.scale,
        "norm_topk_prob": shape.norm_topk,
        "n_shared_experts": shared,
        "first_k_dense_replace": shape.dense_layers,
        "intermediate_size": shape.dense_mlp_dim or shape.mlp_dim,
    }


_YARN = RopeScaling(kind="yarn", factor=40.0, original_length=4096, attention_factor=1.0)
_TURNED = 64


def _preset(
    *,
    layers: int,
    embed_dim: int,
    heads: int,
    mlp_dim: int,
    vocab_size: int,
    rope_theta: float,
    norm_eps: float,
    traits: Mapping[str, Any],
) -> Preset:
    return Preset(
        family="deepseek-v3",
        layers=layers,
        embed_dim=embed_dim,
        heads=heads,
        kv_heads=heads,
        head_dim=128 + _TURNED,
        mlp_dim=mlp_dim,
        vocab_size=vocab_size,
        rope_theta=rope_theta,
        norm_eps=norm_eps,
        sequence_length=4096,
        batch_tokens=2**22,
        traits=traits,
    )


DEEPSEEK_V3 = Family(
    name="deepseek-v3",
    traits={
        "experts": 256,
        "experts_per_token": 8,
        "rotary_dim": _TURNED,
        "latent": Latent(query_rank=1536, rank=512, value_dim=128),
        "sigmoid_router": SigmoidRouter(groups=8, groups_per_token=4, scale=2.5),
        "shared_mlp_dim": 2048,
        "dense_layers": 3,
        "dense_mlp_dim": 18432,
    },
    config=ConfigJson(
        model_type="deepseek_v3",
        architecture="DeepseekV3ForCausalLM",
        mlp_key="moe_intermediate_size",
        experts_key="n_routed_experts",
        defaults=COMMON
        | {
            "vocab_size": 129280,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 61,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "n_shared_experts": 1,
            "n_routed_experts": 256,
            "output_router_logits": False,
            "routed_scaling_factor": 2.5,
            "kv_lora_rank": 512,
            "q_lora_rank": 1536,
            "qk_rope_head_dim": _TURNED,
            "v_head_dim": 128,
            "qk_nope_head_dim": 128,
            "n_group": 8,
            "topk_group": 4,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 3,
            "norm_topk_prob": True,
            "max_position_embeddings": 4096,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pretraining_tp": 1,
            "rope_interleave": True,
            "attention_bias": False,
            "num_nextn_predict_layers": 0,
        },
        # The published code reads the last three, transformers does not.
        only=NO_BIAS | {"scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",), "moe_layer_freq": (1,)},
        written={"num_nextn_predict_layers": 0},
        without_effect=("num_mtp_layers", "qk_head_dim", "ep_size", "aux_loss_alpha", "seq_aux"),
        read=_read,
        write=_write,
    ),
    layer_tensors=_tensors,
    presets={
        # deepseek-ai/DeepSeek-V3 config.json; mlp_dim is that of one expert.
        "deepseek-v3": _preset(
            layers=61,
            embed_dim=7168,
            heads=128,
            mlp_dim=2048,
            vocab_size=129_280,
            rope_theta=10_000.0,
            norm_eps=1e-6,
            traits={
                "rope_scaling": _YARN,
                "latent": Latent(
                    query_rank=1536, rank=512, value_dim=128, score_factor=(0.1 * math.log(40.0) + 1.0) ** 2
                ),
            },
        ),
        # moonshotai/Moonlight-16B-A3B config.json.
        "moonlight-16b-a3b": _preset(
            layers=27,
            embed_dim=2048,
            heads=16,
            mlp_dim=1408,
            vocab_size=163_840,
            rope_theta=50_000.0,
            norm_eps=1e-5,
            traits={
                "experts": 64,
                "experts_per_token": 6,
                "latent": Latent(query_rank=None, rank=512, value_dim=128),
                "sigmoid_router": SigmoidRouter(scale=2.446),
                "shared_mlp_dim": 2816,
                "dense_layers": 1,
                "dense_mlp_dim": 11264,
            },
        ),
    },
)
