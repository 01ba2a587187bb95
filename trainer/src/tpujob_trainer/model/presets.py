"""Models by name, with the context and batch they are usually trained with: two small ones, and each family's own."""

from tpujob_trainer.model.families import FAMILY_PRESETS, Preset

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
    # About 100 million parameters with a vocabulary of 32 000; an hour on one TPU host.
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
} | FAMILY_PRESETS
