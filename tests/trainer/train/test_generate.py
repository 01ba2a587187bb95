import jax
import numpy as np
import optax
import pytest

from tests.trainer.model import plain_decoder
from tests.trainer.train.test_step import SHAPE
from tpujob_trainer.config.schema import SampleConfig
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.train import generate
from tpujob_trainer.train.generate import make_sampler, padded, until_end
from tpujob_trainer.train.optimizer import is_decayed
from tpujob_trainer.train.step import init_state

pytestmark = pytest.mark.usefixtures("compiled_once")

PROMPT = [7, 8, 3]


@pytest.mark.parametrize("gathered", ["once", "for each token"])
def test_the_likeliest_token_follows_each_time(gathered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if gathered == "for each token":
        monkeypatch.setattr(generate, "GATHERED_ONCE_BYTES", 0)
    model = Model(SHAPE, build_mesh(slices=1))
    # Fresh weights are so small that the last token alone decides.
    fresh = init_state(model, optax.identity(), 3).weights
    weights = jax.tree.map(lambda weight, decays: (10 if decays else 1) * weight, fresh, is_decayed(fresh))
    config = SampleConfig(prompt="not used here", tokens=9, temperature=0)
    sampler = make_sampler(model, longest=len(PROMPT) + 2, config=config, seed=0)
    found = np.asarray(sampler(weights, *padded(PROMPT, len(PROMPT) + 2)))
    tokens = list(PROMPT)
    for _ in range(config.tokens):
        length = len(tokens)
        scores = plain_decoder.logits(weights, np.array(tokens), np.arange(length), np.ones(length, int), SHAPE)
        assert np.isfinite(scores).all()
        tokens.append(int(np.argmax(scores[-1])))
    assert found.tolist() == tokens[len(PROMPT) :]
    assert len(set(tokens)) > len(PROMPT), tokens


def test_prompts_of_any_length_share_a_program() -> None:
    model = Model(SHAPE, build_mesh(slices=1))
    fresh = init_state(model, optax.identity(), 3).weights
    weights = jax.tree.map(lambda weight, decays: (10 if decays else 1) * weight, fresh, is_decayed(fresh))
    config = SampleConfig(prompts=("not used", "here"), tokens=5, temperature=0.5)
    shared = make_sampler(model, longest=6, config=config, seed=1)
    for prompt in ([7], PROMPT, [1, 2, 3, 4, 5, 6]):
        alone = make_sampler(model, longest=len(prompt), config=config, seed=1)
        expected = np.asarray(alone(weights, *padded(prompt, len(prompt))))
        assert np.asarray(shared(weights, *padded(prompt, 6))).tolist() == expected.tolist()
    assert shared._cache_size() == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(("tokens", "kept"), [([5, 6, 9, 7], [5, 6]), ([5, 6], [5, 6]), ([9], []), ([], [])])
def test_a_text_ends_with_its_document(tokens: list[int], kept: list[int]) -> None:
    assert until_end(tokens, eos=9) == kept
