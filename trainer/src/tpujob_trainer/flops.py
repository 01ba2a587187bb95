"""Floating point operations of training, by arithmetic: `cost_analysis` counts a scan's body once and no kernel."""

from __future__ import annotations

from tpujob_trainer.model.shape import ModelShape


def forward_flops_per_token(shape: ModelShape, sequence_length: int) -> int:
    """Operations to compute one token's logits: two for each weight of a matrix product, and attention.

    Attention counts every pair of positions, masked or not (Chowdhery and others 2022, PaLM, appendix B): queries
    times keys and probabilities times values are 2 · 2 · heads · headDim operations for each of them.
    """
    projections = 2 * shape.embed_dim * shape.head_dim * (shape.heads + shape.kv_heads)
    layer = 2 * (projections + 3 * shape.embed_dim * shape.mlp_dim)
    attention = 4 * sequence_length * shape.heads * shape.head_dim
    return shape.layers * (layer + attention) + 2 * shape.embed_dim * shape.vocab_size


def training_flops_per_token(shape: ModelShape, sequence_length: int) -> int:
    """Operations to learn from one token: the backward pass is twice the forward one. Recomputation is not counted."""
    return 3 * forward_flops_per_token(shape, sequence_length)
