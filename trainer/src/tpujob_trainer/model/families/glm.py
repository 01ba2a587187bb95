"""GLM-4.7-Flash (`glm4_moe_lite`): DeepSeek-V3 whose config.json names the kind of each layer."""

import dataclasses
from typing import Any

from tpujob_trainer.model.families.base import Family, Latent, SigmoidRouter
from tpujob_trainer.model.families.deepseek import DEEPSEEK_V3
from tpujob_trainer.model.families.keys import whole

_BASE = DEEPSEEK_V3.config
_DEFAULTS = (
    {"vocab_size": 154880, "hidden_size": 2048, "intermediate_size": 10240, "moe_intermediate_size": 1536}
    | {"num_hidden_layers": 47, "num_attention_heads": 20, "num_key_value_heads": 20, "n_routed_experts": 64}
    | {"routed_scaling_factor": 1.8, "q_lora_rank": 768, "v_head_dim": 256, "qk_nope_head_dim": 192, "n_group": 1}
    | {"topk_group": 1, "num_experts_per_tok": 4, "max_position_embeddings": 202752, "rms_norm_eps": 1e-5}
    | {"mlp_layer_types": None}
)


def _kinds(dense: int, layers: int) -> list[str]:
    return ["dense"] * dense + ["sparse"] * (layers - dense)


def _read(given: Any) -> dict[str, Any]:
    layers, kinds = whole(given, "num_hidden_layers"), given["mlp_layer_types"]
    dense = 1 if kinds is None else [*kinds].count("dense")
    if kinds is not None and kinds != _kinds(dense, layers):
        raise ValueError(f"mlp_layer_types is {kinds}; name dense for the first of {layers} layers, then sparse")
    return _BASE.read({**given, "first_k_dense_replace": dense})


GLM4_MOE_LITE = Family(
    name="glm4-moe-lite",
    traits=dict(DEEPSEEK_V3.traits)
    | {"experts": 64, "experts_per_token": 4, "shared_mlp_dim": 1536, "dense_layers": 1, "dense_mlp_dim": 10240}
    | {"latent": Latent(query_rank=768, rank=512, value_dim=256), "sigmoid_router": SigmoidRouter(scale=1.8)},
    config=dataclasses.replace(
        _BASE,
        model_type="glm4_moe_lite",
        architecture="Glm4MoeLiteForCausalLM",
        defaults={key: value for key, value in _BASE.defaults.items() if key != "first_k_dense_replace"} | _DEFAULTS,
        read=_read,
        write=lambda shape: _BASE.write(shape) | {"mlp_layer_types": _kinds(shape.dense_layers, shape.layers)},
    ),
    layer_tensors=DEEPSEEK_V3.layer_tensors,
)
