"""Mixtral: each token goes through two of eight feed-forward blocks, weighted by a softmax over these two."""

from collections.abc import Iterator
from typing import Any

from tpujob_trainer.model.families.base import ConfigJson, Family, Preset, Tensor
from tpujob_trainer.model.families.keys import EXPERTS, MISTRAL
from tpujob_trainer.model.families.tensors import attention, experts, norms


def _tensors(shape: Any, layer: str) -> Iterator[Tensor]:
    yield from norms(shape, layer)
    yield from attention(shape, layer)
    yield from experts(f"{layer}block_sparse_moe.", names={"gate": "w1", "up": "w3", "down": "w2"})


MIXTRAL = Family(
    name="mixtral",
    config=ConfigJson(
        model_type="mixtral",
        architecture="MixtralForCausalLM",
        theta=1_000_000.0,
        experts_key="num_local_experts",
        defaults=MISTRAL
        | EXPERTS
        | {
            "rms_norm_eps": 1e-5,
            "sliding_window": None,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "router_jitter_noise": 0.0,
        },
    ),
    layer_tensors=_tensors,
    traits={"experts": 8, "experts_per_token": 2},
    presets={
        # mistralai/Mixtral-8x7B-v0.1 config.json.
        "mixtral-8x7b": Preset(
            family="mixtral",
            layers=32,
            embed_dim=4096,
            heads=32,
            kv_heads=8,
            mlp_dim=14336,
            vocab_size=32_000,
            rope_theta=1_000_000.0,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
        # mistralai/Mixtral-8x22B-v0.1 config.json.
        "mixtral-8x22b": Preset(
            family="mixtral",
            layers=56,
            embed_dim=6144,
            heads=48,
            kv_heads=8,
            mlp_dim=16384,
            vocab_size=32_000,
            rope_theta=1_000_000.0,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
    },
)
