"""The model written a second time, as plainly as can be: one row, no scan, no mesh, no chunks, no shared code."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_trainer.model.shape import ModelShape


def rms_norm(x: Any, scale: Any, eps: float) -> Any:
    return x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + eps) * scale


def rope(x: Any, positions: Any, theta: float) -> Any:
    """Pairs of numbers as complex ones, turned by an angle; x [S, H], positions [S]."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-2 * np.arange(half) / x.shape[-1])
    turned = (x[:, :half] + 1j * x[:, half:]) * jnp.exp(1j * positions[:, None] * frequencies)
    return jnp.concatenate([turned.real, turned.imag], axis=-1)


def attend(query: Any, key: Any, value: Any, segments: Any) -> Any:
    """One head: [S, H] each."""
    at = np.arange(len(segments))
    sees = (at[None, :] <= at[:, None]) & (segments[None, :] == segments[:, None])
    weights = jnp.where(sees, jnp.exp(query @ key.T / np.sqrt(query.shape[-1])), 0)
    return weights / weights.sum(axis=-1, keepdims=True) @ value


def attention(w: Any, x: Any, positions: Any, segments: Any, shape: ModelShape) -> Any:
    """x [S, D]; w has query, key, value and out."""
    group = shape.heads // shape.kv_heads
    total = jnp.zeros_like(x)
    for head in range(shape.heads):
        query = rope(x @ w["query"][:, head], positions, shape.rope_theta)
        key = rope(x @ w["key"][:, head // group], positions, shape.rope_theta)
        total += attend(query, key, x @ w["value"][:, head // group], segments) @ w["out"][head]
    return total


def logits(weights: Any, tokens: Any, positions: Any, segments: Any, shape: ModelShape) -> Any:
    """[S, V] of one row."""
    x = jnp.asarray(weights["embedding"])[tokens]
    for i in range(shape.layers):
        w = jax.tree.map(lambda stacked, i=i: stacked[i], weights["layers"])
        normed = rms_norm(x, w["attention_norm"]["scale"], shape.norm_eps)
        x = x + attention(w["attention"], normed, positions, segments, shape)
        normed = rms_norm(x, w["mlp_norm"]["scale"], shape.norm_eps)
        gate = normed @ w["mlp"]["gate"]
        x = x + (gate / (1 + jnp.exp(-gate)) * (normed @ w["mlp"]["up"])) @ w["mlp"]["down"]
    output = weights["embedding"].T if shape.tie_embeddings else weights["output"]
    return rms_norm(x, weights["norm"]["scale"], shape.norm_eps) @ output


def mean_loss(weights: Any, batch: Any, shape: ModelShape) -> Any:
    """Mean of -log p(target) over the positions that count."""

    def of_row(tokens: Any, positions: Any, segments: Any, targets: Any) -> Any:
        scores = logits(weights, tokens, positions, segments, shape)
        return jnp.log(jnp.exp(scores).sum(axis=-1)) - scores[np.arange(len(targets)), targets]

    losses = jax.vmap(of_row)(batch.inputs, batch.positions, batch.segment_ids, batch.targets)
    return jnp.sum(losses * batch.loss_mask) / batch.loss_mask.sum()
