import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.trainer.model import plain_decoder
from tpujob_trainer.model.attention.blocked import blocked_attention
from tpujob_trainer.model.attention.rotary import rotary_angles, rotate
from tpujob_trainer.model.layers import Attention
from tpujob_trainer.model.norm import RMSNorm
from tpujob_trainer.model.shape import ModelShape

SHAPE = ModelShape(layers=1, embed_dim=16, heads=4, kv_heads=2, head_dim=6, mlp_dim=24, vocab_size=11)
SEGMENTS = np.array([[1, 1, 1, 2, 2, 3]])
POSITIONS = np.array([[0, 1, 2, 0, 1, 0]])


def random(*dims: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=dims).astype(np.float32)


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
def test_rotation_equals_complex_multiplication(theta: float) -> None:
    x = random(1, 6, 3, 8)
    positions = np.array([[0, 1, 2, 3, 100, 8191]])
    turned = rotate(jnp.asarray(x), rotary_angles(jnp.asarray(positions), rotary_dim=8, theta=theta))
    for head in range(3):
        plain = plain_decoder.rope(x[0, :, head], positions[0], theta)
        # Angles of 8191 radians in float32 are known to 5e-4 only.
        np.testing.assert_allclose(turned[0, :5, head], plain[:5], atol=1e-5)
        np.testing.assert_allclose(turned[0, 5, head], plain[5], atol=3e-3)


def test_rotation_depends_on_distance_only() -> None:
    x, y = random(2, 1, 1, 1, 8)

    def product(at: int, other: int) -> float:
        turned = [
            rotate(jnp.asarray(v), rotary_angles(jnp.array([[p]]), rotary_dim=8, theta=1e4))
            for v, p in ((x, at), (y, other))
        ]
        return float(jnp.sum(turned[0] * turned[1]))

    assert product(3, 1) == pytest.approx(product(12, 10), abs=1e-5)
    assert product(3, 1) != pytest.approx(product(3, 2), abs=1e-3)


def test_attention_equals_the_plain_one() -> None:
    module = Attention(SHAPE, rngs=nnx.Rngs(0))
    weights = nnx.to_pure_dict(nnx.state(module))
    weights = jax.tree.map(lambda w: w * 30, weights)  # scores that differ from each other
    nnx.update(module, weights)
    x = random(1, 6, 16)
    angles = rotary_angles(jnp.asarray(POSITIONS), rotary_dim=6, theta=SHAPE.rope_theta)
    query, key, value = module.projected(jnp.asarray(x), angles)
    segments = jnp.asarray(SEGMENTS)
    found = module.joined(blocked_attention(query, key, value, segments, segments, scale=SHAPE.score_scale))
    plain = plain_decoder.attention(weights, x[0], POSITIONS[0], SEGMENTS[0], SHAPE)
    np.testing.assert_allclose(found[0], plain, rtol=1e-4, atol=1e-5)


def test_a_norm_has_unit_mean_square_and_keeps_the_type() -> None:
    x = jnp.asarray(random(2, 3, 16) * 50, jnp.bfloat16)
    y = RMSNorm(SHAPE)(x)
    assert y.dtype == jnp.bfloat16
    # bfloat16 has 8 bits: 0.4 % for each number.
    np.testing.assert_allclose(np.mean(np.square(y.astype(jnp.float32)), axis=-1), 1.0, rtol=1e-2)
