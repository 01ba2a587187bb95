import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh

from tpujob_trainer.model import embedding
from tpujob_trainer.model import loss as module
from tpujob_trainer.model.loss import CHUNK_BYTES, cross_entropy, num_chunks, token_losses
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape

MESHES = {
    "one device": MeshShape(),
    "2 slices, context 2": MeshShape(slice=2, context=2),
    "expert 2, tensor 2": MeshShape(expert=2, tensor=2),
}
WAYS = {
    "matrix travels in blocks": (0, True),
    "matrix travels at once": (0, False),
    "tokens travel": (1000, False),
}


def arrays() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    hidden, output = rng.normal(size=(8, 10, 8)).astype(np.float32), rng.normal(size=(8, 19)).astype(np.float32)
    return hidden, output, rng.integers(0, 19, (8, 10)), rng.random((8, 10)) < 0.7


def plain(hidden, output, targets, mask, softcap):
    logits = hidden @ output
    logits = logits if softcap is None else softcap * jnp.tanh(logits / softcap)
    of_target = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)[..., 0]
    return -jnp.where(mask, of_target, 0.0)


@pytest.mark.parametrize(
    ("mesh", "way", "chunk_bytes", "softcap"),
    [
        ("one device", "tokens travel", 19 * 4 * 3, 1.5),
        *((mesh, way, 19 * 4 * 3, 1.5) for mesh in MESHES if mesh != "one device" for way in WAYS),
        *(("2 slices, context 2", way, 2**28, None) for way in WAYS),
    ],
)
def test_loss_and_gradient_are_the_plain_ones(mesh, way, chunk_bytes, softcap, monkeypatch) -> None:
    """In chunks of three tokens, or in one."""
    tokens_per_column, is_kept = WAYS[way]
    monkeypatch.setattr(module, "TILE", 1)
    monkeypatch.setattr(module, "_is_kept", lambda tokens, columns, dtype: is_kept and columns.is_whole)
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(module, "GATHERED_CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(embedding, "TOKENS_PER_COLUMN", tokens_per_column)
    shape = MESHES[mesh]
    over = build_mesh(slices=shape.slice, devices=jax.devices()[: np.prod(shape.sizes)], shape=shape)
    hidden, output, targets, mask = arrays()

    def computed(h, o):
        total = jax.value_and_grad(lambda h, o: 3.0 * cross_entropy(h, o, targets, mask, over, softcap), argnums=(0, 1))
        return total(h, o), token_losses(h, o, targets, mask, over, softcap)

    found, losses = jax.jit(computed)(hidden, output)
    told = jax.value_and_grad(lambda h, o: 3.0 * jnp.sum(plain(h, o, targets, mask, softcap)), argnums=(0, 1))(
        hidden, output
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, told)
    np.testing.assert_allclose(losses, plain(hidden, output, targets, mask, softcap), rtol=1e-5, atol=1e-6)


def test_z_loss_pulls_the_sum_of_powers_to_one() -> None:
    hidden, output, targets, mask = arrays()
    mesh = build_mesh(slices=1, devices=jax.devices()[:2])

    def with_z(h, o):
        log_z = jax.nn.logsumexp(h @ o, axis=-1)
        return jnp.sum(plain(h, o, targets, mask, None)) + 0.1 * jnp.sum(jnp.where(mask, log_z**2, 0.0))

    value, found = jax.jit(
        jax.value_and_grad(lambda h, o: cross_entropy(h, o, targets, mask, mesh, None, 0.1), argnums=(0, 1))
    )(hidden, output)
    told = jax.grad(with_z, argnums=(0, 1))(hidden, output)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, told)
    np.testing.assert_allclose(value, jnp.sum(plain(hidden, output, targets, mask, None)), rtol=1e-5)


@pytest.mark.parametrize(
    ("devices", "tokens", "vocabulary", "gathered"),
    [
        pytest.param(1, 8192, 32_000, False, id="one device has all"),
        pytest.param(16, 8192, 128_256, False, id="few tokens for many words"),
        pytest.param(16, 8192, 32_000, True, id="many tokens for few words"),
        pytest.param(256, 8192, 128_256, True, id="many devices"),
    ],
)
def test_less_travels(devices: int, tokens: int, vocabulary: int, gathered: bool) -> None:
    mesh = AbstractMesh((devices, 1, 1, 1), ("fsdp", "expert", "context", "tensor"))
    assert embedding.is_gathered(tokens=tokens, vocab_size=vocabulary, mesh=mesh) is gathered


def test_a_target_without_logit_has_no_finite_loss() -> None:
    hidden, output, targets, mask = arrays()
    targets[0, 0], mask[0, 0] = 99, True
    mesh = build_mesh(slices=1, devices=jax.devices()[:1])
    assert not np.isfinite(jax.jit(lambda h, o: cross_entropy(h, o, targets, mask, mesh, None))(hidden, output))


@pytest.mark.parametrize(
    ("tokens", "vocabulary", "chunks"),
    [(256, 384, 1), (8192, 128_256, 16), (4 * 8192, 128_256, 64), (8191, 128_256, 16), (4, 2**30, 4)],
)
def test_logits_stay_within_the_limit(tokens: int, vocabulary: int, chunks: int) -> None:
    assert num_chunks(tokens, vocabulary, CHUNK_BYTES) == chunks
    assert tokens * vocabulary * 4 / chunks <= CHUNK_BYTES or chunks == tokens
