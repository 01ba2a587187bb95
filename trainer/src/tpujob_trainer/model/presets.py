"""Models by name, with the context and batch they are usually trained with.

All are of one kind: RMSNorm, rotary positions without scaling, grouped-query attention without biases, SwiGLU.
What needs more (biases in Qwen 2.5, normalised queries in Qwen 3, scaled frequencies in Llama 3.1, soft-capping in
Gemma 2) is not here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A model and the way it is usually trained; every value can be overridden in the `trainer` block."""

    layers: int
    embed_dim: int
    heads: int
    kv_heads: int
    mlp_dim: int
    vocab_size: int | None = None
    """None: as large as the tokenizer needs."""
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = False
    remat: str = "full"
    sequence_length: int = 2048
    batch_tokens: int = 2**19
    """Tokens of a global batch where batchSize is not given. It does not depend on the number of devices, because the
    batches of a run must stay the same when it moves to other hardware."""
    learning_rate: float = 3e-4


PRESETS: dict[str, Preset] = {
    # Two to three minutes on a laptop are enough to see it learn. Everything is kept for the backward pass.
    "tiny": Preset(
        layers=4,
        embed_dim=128,
        heads=4,
        kv_heads=2,
        mlp_dim=384,
        tie_embeddings=True,
        remat="none",
        sequence_length=128,
        batch_tokens=16 * 128,
        learning_rate=3e-3,
    ),
    # About 125 million parameters with a vocabulary of 32 000; an hour on one TPU host.
    "small": Preset(
        layers=12,
        embed_dim=768,
        heads=12,
        kv_heads=4,
        mlp_dim=2048,
        tie_embeddings=True,
        sequence_length=1024,
        learning_rate=6e-4,
    ),
    # Touvron and others 2023, Llama 2, table 1; meta-llama/Llama-2-7b config.json.
    "llama2-7b": Preset(
        layers=32,
        embed_dim=4096,
        heads=32,
        kv_heads=32,
        mlp_dim=11008,
        vocab_size=32_000,
        sequence_length=4096,
        batch_tokens=2**22,
    ),
    # Grattafiori and others 2024, The Llama 3 Herd of Models, table 3; meta-llama/Meta-Llama-3-8B config.json.
    "llama3-8b": Preset(
        layers=32,
        embed_dim=4096,
        heads=32,
        kv_heads=8,
        mlp_dim=14336,
        vocab_size=128_256,
        rope_theta=500_000.0,
        sequence_length=8192,
        batch_tokens=2**22,
    ),
    "llama3-70b": Preset(
        layers=80,
        embed_dim=8192,
        heads=64,
        kv_heads=8,
        mlp_dim=28672,
        vocab_size=128_256,
        rope_theta=500_000.0,
        sequence_length=8192,
        batch_tokens=2**22,
        learning_rate=1.5e-4,
    ),
    # mistralai/Mistral-7B-v0.3 config.json: without the sliding window of its first version.
    "mistral-7b": Preset(
        layers=32,
        embed_dim=4096,
        heads=32,
        kv_heads=8,
        mlp_dim=14336,
        vocab_size=32_768,
        rope_theta=1_000_000.0,
        sequence_length=8192,
        batch_tokens=2**22,
    ),
}
