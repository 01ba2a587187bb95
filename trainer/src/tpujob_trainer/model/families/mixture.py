"""Mixtures of experts: Mixtral and Qwen 3 MoE. Each token goes through a few of many feed-forward blocks.

Both weigh the chosen experts by a softmax over the chosen ones alone.
"""

from __future__ import annotations

from tpujob_trainer.model.families.base import Family, Preset

MIXTRAL = Family(
    name="mixtral",
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
    },
)

QWEN3_MOE = Family(
    name="qwen3-moe",
    traits={"qk_norm": True, "experts": 128, "experts_per_token": 8},
    presets={
        # Qwen/Qwen3-30B-A3B config.json; mlp_dim is that of one expert.
        "qwen3-30b-a3b": Preset(
            family="qwen3-moe",
            layers=48,
            embed_dim=2048,
            heads=32,
            kv_heads=4,
            head_dim=128,
            mlp_dim=768,
            vocab_size=151_936,
            rope_theta=1_000_000.0,
            norm_eps=1e-6,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
    },
)
