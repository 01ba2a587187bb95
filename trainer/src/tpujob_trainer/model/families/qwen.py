"""Qwen 2 and 2.5 (biases on queries, keys and values) and Qwen 3 (queries and keys normalised instead)."""

from __future__ import annotations

from tpujob_trainer.model.families.base import Family, Preset

QWEN2 = Family(
    name="qwen2",
    traits={"qkv_bias": True},
    presets={
        # Qwen/Qwen2.5-7B and Qwen2.5-0.5B config.json.
        "qwen2.5-7b": Preset(
            family="qwen2",
            layers=28,
            embed_dim=3584,
            heads=28,
            kv_heads=4,
            mlp_dim=18944,
            vocab_size=152_064,
            rope_theta=1_000_000.0,
            norm_eps=1e-6,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
        "qwen2.5-0.5b": Preset(
            family="qwen2",
            layers=24,
            embed_dim=896,
            heads=14,
            kv_heads=2,
            mlp_dim=4864,
            vocab_size=151_936,
            rope_theta=1_000_000.0,
            norm_eps=1e-6,
            tie_embeddings=True,
            sequence_length=8192,
            batch_tokens=2**21,
        ),
    },
)

QWEN3 = Family(
    name="qwen3",
    traits={"qk_norm": True},
    presets={
        # Qwen/Qwen3-8B config.json.
        "qwen3-8b": Preset(
            family="qwen3",
            layers=36,
            embed_dim=4096,
            heads=32,
            kv_heads=8,
            head_dim=128,
            mlp_dim=12288,
            vocab_size=151_936,
            rope_theta=1_000_000.0,
            norm_eps=1e-6,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
    },
)
