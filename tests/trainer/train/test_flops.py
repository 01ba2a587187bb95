import dataclasses

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from tpujob_trainer.model.attention.blocked import blocked_attention
from tpujob_trainer.model.attention.rotary import rotary_angles
from tpujob_trainer.model.config import ModelConfig
from tpujob_trainer.model.decoder import Decoder
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.train.arithmetic import (
    attention_flops_per_token,
    forward_flops_per_token,
    training_flops_per_token,
    utilisation,
)

SHAPE = ModelShape(layers=1, embed_dim=128, heads=4, kv_heads=2, head_dim=32, mlp_dim=384, vocab_size=512)


def test_arithmetic_agrees_with_the_compiler() -> None:
    length = 64

    structure, weights = nnx.split(nnx.eval_shape(lambda: Decoder(SHAPE, rngs=nnx.Rngs(0))))

    def forward(weights: nnx.State, tokens: jax.Array) -> jax.Array:
        decoder = nnx.merge(structure, weights)
        layer_structure, stacked = nnx.split(decoder.layers)
        layer = nnx.merge(layer_structure, jax.tree.map(lambda leaf: leaf[0], stacked))
        angles = rotary_angles(jnp.arange(length)[None], rotary_dim=32, theta=1e4)
        same = jnp.ones_like(tokens)
        x, *_ = layer(
            decoder.embedding[...][tokens],
            angles,
            lambda q, k, v, is_global, sinks: blocked_attention(q, k, v, same, same, scale=SHAPE.score_scale),
        )
        return decoder.norm(x) @ decoder.output[...]

    abstract = jax.ShapeDtypeStruct((1, length), jnp.int32)
    counted = jax.jit(forward).lower(weights, abstract).compile().cost_analysis()["flops"]
    assert counted == pytest.approx(forward_flops_per_token(SHAPE, length) * length, rel=0.1)


def test_training_is_six_per_parameter_and_attention() -> None:
    shape = ModelConfig(preset="llama3-8b").resolve(vocabulary=9, platform="tpu")
    per_parameter = training_flops_per_token(shape, 0) / (shape.num_parameters - shape.vocab_size * shape.embed_dim)
    assert per_parameter == pytest.approx(6, rel=1e-4)
    attention = training_flops_per_token(shape, 8192) - training_flops_per_token(shape, 0)
    assert attention == 12 * shape.layers * shape.heads * shape.head_dim * 8192


@pytest.mark.parametrize(
    ("kind", "devices", "expected"),
    [("TPU v5 lite", 1, 0.5), ("TPU v5 lite", 4, 0.125), ("TPU v4", 1, 0.5 * 197 / 275), ("cpu", 1, None)],
)
def test_utilisation_is_of_all_devices(kind, devices, expected):
    found = utilisation(1e3, flops_per_token=98.5e9, device_kind=kind, devices=devices)
    assert found == (None if expected is None else pytest.approx(expected))


def test_causal_attention_is_half_of_the_square_and_less_in_a_window() -> None:
    shape = dataclasses.replace(SHAPE, layers=2)
    per_pair = 4 * shape.heads * shape.head_dim

    def attention(shape: ModelShape) -> float:
        return forward_flops_per_token(shape, 64, is_causal=True) - forward_flops_per_token(shape, 0)

    assert attention(shape) == per_pair * 2 * 32.5
    # Positions 0 to 7 see 1 to 8, all others 8.
    windowed = dataclasses.replace(shape, window=8, global_every=2)
    assert attention(windowed) == per_pair * (32.5 + (36 + 56 * 8) / 64)


def test_products_of_latents_and_of_dense_layers_are_two_operations_for_each_weight() -> None:
    shape = ModelConfig(preset="deepseek-v3").resolve(vocabulary=2, platform="cpu")
    vectors = 61 * (2 * 7168 + 1536 + 512) + 7168 + 58 * 256
    matrices = shape.active_parameters - vectors - 129_280 * 7168  # the embedding is looked up
    assert forward_flops_per_token(shape, 0) == 2 * matrices
    # Scores over 192 numbers of a head, values of 128.
    assert attention_flops_per_token(shape, 1000) == 2 * 61 * 128 * (192 + 128) * 1000


def test_only_the_experts_of_a_token_count() -> None:
    dense = forward_flops_per_token(SHAPE, 0)
    mixed = dataclasses.replace(SHAPE, experts=8, experts_per_token=2)
    mlp = 2 * 3 * SHAPE.embed_dim * SHAPE.mlp_dim
    assert forward_flops_per_token(mixed, 0) == dense + mlp + 2 * SHAPE.embed_dim * 8


def test_the_block_that_all_tokens_share_counts_with_its_gate() -> None:
    mixed = dataclasses.replace(SHAPE, experts=8, experts_per_token=2)
    shared = dataclasses.replace(mixed, shared_mlp_dim=640, shared_gate=True)
    more = forward_flops_per_token(shared, 0) - forward_flops_per_token(mixed, 0)
    assert more == 2 * (3 * SHAPE.embed_dim * 640 + SHAPE.embed_dim)
    assert more == 2 * (shared.active_parameters - mixed.active_parameters)
