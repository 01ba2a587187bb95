"""What a model computes, by the functions that training and samples use."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_trainer.config.schema import SampleConfig
from tpujob_trainer.model.decoder import Model, soft_capped
from tpujob_trainer.model.shape import TRAINING_ONLY, ModelShape
from tpujob_trainer.train.generate import make_sampler, padded


def logits(model: Model, weights, tokens) -> np.ndarray:
    """Float32 `[tokens, vocabulary]`."""
    # The same row on every device: rows are divided over all of them.
    ids = jnp.asarray([tokens] * model.mesh.size)

    def compute(weights):
        positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        hidden, output = model.hidden(weights, ids, positions, jnp.ones_like(ids))
        return soft_capped(hidden[0] @ output, model.shape.logit_softcap)

    return np.asarray(jax.jit(compute)(weights))


def greedy(model: Model, weights, tokens, count: int) -> list[int]:
    """The likeliest tokens one after the other."""
    config = SampleConfig(prompt="not used here", tokens=count, temperature=0)
    sampler = make_sampler(model, longest=len(tokens), config=config, seed=0)
    return np.asarray(sampler(weights, *padded(tokens, len(tokens)))).tolist()


def is_close(one: ModelShape, other: ModelShape) -> bool:
    """Whether two shapes are the same decoder."""
    if not math.isclose(one.score_scale, other.score_scale, rel_tol=1e-6):
        return False
    pairs = (
        (getattr(one, name), getattr(other, name))
        for name in one.__dataclass_fields__
        if name not in ("remat", "query_scale", *TRAINING_ONLY)
    )
    return all(
        math.isclose(a, b, rel_tol=1e-6) if isinstance(a, float) and isinstance(b, float) else a == b for a, b in pairs
    )
