"""Gemma 2 and 3: norms before and after each block, scaled and tied embeddings, layers that see a window only.

Gemma 2 caps attention scores and logits (Gemma Team 2024, section 2); Gemma 3 normalises queries and keys instead, and
turns positions of windowed layers with a base of their own (Gemma Team 2025, section 2). The scale of a norm is stored
as its distance from one.
"""

from __future__ import annotations

from tpujob_trainer.model.families.base import Family, Preset, RopeScaling

_COMMON = {
    "activation": "gelu",
    "post_norms": True,
    "zero_centered_norms": True,
    "scaled_embedding": True,
    "tie_embeddings": True,
}

GEMMA2 = Family(
    name="gemma2",
    traits=_COMMON | {"attention_softcap": 50.0, "logit_softcap": 30.0, "window": 4096, "global_every": 2},
    presets={
        # google/gemma-2-9b config.json.
        "gemma2-9b": Preset(
            family="gemma2",
            layers=42,
            embed_dim=3584,
            heads=16,
            kv_heads=8,
            head_dim=256,
            mlp_dim=14336,
            vocab_size=256_000,
            norm_eps=1e-6,
            tie_embeddings=True,
            sequence_length=8192,
            batch_tokens=2**22,
        ),
    },
)

GEMMA3 = Family(
    name="gemma3",
    traits=_COMMON | {"qk_norm": True, "window": 1024, "global_every": 6, "local_rope_theta": 10_000.0},
    presets={
        # google/gemma-3-1b-pt and gemma-3-4b-pt (text part) config.json.
        "gemma3-1b": Preset(
            family="gemma3",
            layers=26,
            embed_dim=1152,
            heads=4,
            kv_heads=1,
            head_dim=256,
            mlp_dim=6912,
            vocab_size=262_144,
            rope_theta=1_000_000.0,
            norm_eps=1e-6,
            tie_embeddings=True,
            sequence_length=8192,
            batch_tokens=2**21,
            traits={"window": 512},
        ),
        "gemma3-4b": Preset(
            family="gemma3",
            layers=34,
            embed_dim=2560,
            heads=8,
            kv_heads=4,
            head_dim=256,
            mlp_dim=10240,
            vocab_size=262_208,
            rope_theta=1_000_000.0,
            norm_eps=1e-6,
            tie_embeddings=True,
            sequence_length=8192,
            batch_tokens=2**22,
            traits={"rope_scaling": RopeScaling(factor=8.0, linear=True)},
        ),
    },
)
