"""FLOPs of training, by arithmetic: `cost_analysis` counts the body of a scan once, and no kernels."""

from __future__ import annotations

from tpujob_trainer.model.chips import BY_KIND
from tpujob_trainer.model.shape import CustomShape, ModelShape


def utilisation(tokens_per_second: float, *, flops_per_token: float, device_kind: str, devices: int) -> float | None:
    """Model FLOPs utilisation (PaLM, appendix B); None: the peak of the devices is unknown.

    Args:
        tokens_per_second: Of all devices.
        flops_per_token: Of training, without recomputation.
        device_kind: As JAX names it.
        devices: Number of devices of the run.
    """
    chip = BY_KIND.get(device_kind)
    return None if chip is None else tokens_per_second * flops_per_token / (chip.flops * devices)


def forward_flops_per_token(shape: ModelShape, sequence_length: int, *, is_causal: bool = False) -> int:
    """FLOPs for the logits of one token: two for each weight of a matrix product, and attention.

    Queries times keys and probabilities times values are 2 · 2 · heads · headDim FLOPs for each pair of positions. All
    pairs count, masked or not (Chowdhery and others 2022, PaLM, appendix B); with `is_causal`, only those that a row of
    one document needs, as in MaxText. For a custom model only the weights count.
    """
    if isinstance(shape, CustomShape):
        return 2 * shape.num_parameters
    mlp = 3 * shape.embed_dim * shape.mlp_dim
    if shape.experts:
        mlp = mlp * shape.experts_per_token + shape.embed_dim * shape.experts
    if shape.shared_mlp_dim is not None:
        mlp += 3 * shape.embed_dim * shape.shared_mlp_dim + shape.embed_dim * shape.shared_gate
    attention = attention_flops_per_token(shape, sequence_length, is_causal=is_causal)
    dense = shape.dense_layers * 3 * shape.embed_dim * (shape.dense_mlp_dim or 0)
    products = shape.layers * shape.projection_parameters + (shape.layers - shape.dense_layers) * mlp + dense
    return 2 * products + attention + 2 * shape.embed_dim * shape.vocab_size


def attention_flops_per_token(shape: ModelShape, sequence_length: int, *, is_causal: bool = False) -> int:
    """The part of `forward_flops_per_token` between queries, keys and values; 0 for a custom model."""
    if isinstance(shape, CustomShape):
        return 0
    seen = sum(_pairs(shape, sequence_length, is_global, is_causal) for is_global in shape.global_layers)
    return int(2 * shape.heads * (shape.head_dim + shape.value_dim) * seen)


def training_flops_per_token(shape: ModelShape, sequence_length: int, *, is_causal: bool = False) -> int:
    """FLOPs to train on one token: the backward pass is twice the forward pass. Recomputation is not counted."""
    return 3 * forward_flops_per_token(shape, sequence_length, is_causal=is_causal)


def _pairs(shape: ModelShape, length: int, is_global: bool, is_causal: bool) -> float:
    """The mean number of positions that count for a position of a layer."""
    if not is_causal or not length:
        return length
    window = length if is_global or shape.window is None else min(shape.window, length)
    return window - window * (window - 1) / (2 * length)
