"""What a compiled step keeps: gathered weights never, whatever the remat policy."""

import dataclasses

import jax
import optax
import pytest

from tpujob_trainer.model import decoder
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.train.step import abstract_batch, abstract_state, make_train_step

SHAPE = ModelShape(layers=12, embed_dim=256, heads=2, kv_heads=2, head_dim=128, mlp_dim=512, vocab_size=64)
"""Matrices of a layer are 2.6 MB in float32; of a token, activations are a few kB."""
SGD = optax.sgd(1.0)


def temporary_bytes(shape: ModelShape, *, rows: int = 8, accumulation: int = 1) -> int:
    model = Model(shape, build_mesh(slices=1, devices=jax.devices()[:8]))
    step = make_train_step(model, SGD, optax.constant_schedule(1.0), clip_norm=1.0, gradient_accumulation=accumulation)
    lowered = step.lower(abstract_state(model, SGD), abstract_batch(model, rows, 8))  # type: ignore[attr-defined]
    found: int = lowered.compile().memory_analysis().temp_size_in_bytes
    return found


@pytest.mark.parametrize(("remat", "dtype"), [("full", "float32"), ("dots", "float32"), ("none", "bfloat16")])
def test_gathered_weights_are_never_kept(remat: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "GATHERED_AT_ONCE_BYTES", 0)
    whole = SHAPE.num_parameters * 4
    # An eighth of the gradients, a few gathered layers at a time, and activations of 8 tokens.
    assert temporary_bytes(dataclasses.replace(SHAPE, remat=remat, compute_dtype=dtype)) < whole * 0.6


def test_accumulated_gradients_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "GATHERED_AT_ONCE_BYTES", 0)
    assert temporary_bytes(SHAPE, rows=16, accumulation=2) < SHAPE.num_parameters * 4 * 0.8
