import numpy as np
import optax
import pytest

from tests.trainer import plain_decoder
from tests.trainer.test_train_step import SHAPE
from tpujob_trainer import sampling
from tpujob_trainer.config import SampleConfig
from tpujob_trainer.mesh import build_mesh
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.sampling import make_sampler, until_end
from tpujob_trainer.train_step import init_state

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.mark.parametrize("gathered", ["once", "for each token"])
def test_the_likeliest_token_follows_each_time(gathered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if gathered == "for each token":
        monkeypatch.setattr(sampling, "GATHERED_ONCE_BYTES", 0)
    model = Model(SHAPE, build_mesh(slices=1))
    weights = init_state(model, optax.identity(), 3).weights
    config = SampleConfig(prompt="not used here", tokens=5, temperature=0)
    found = np.asarray(make_sampler(model, prompt=[7, 8], config=config, seed=0)(weights))
    tokens = [7, 8]
    for _ in range(5):
        length = len(tokens)
        scores = plain_decoder.logits(weights, np.array(tokens), np.arange(length), np.ones(length, int), SHAPE)
        tokens.append(int(np.argmax(scores[-1])))
    assert found.tolist() == tokens[2:]


@pytest.mark.parametrize(("tokens", "kept"), [([5, 6, 9, 7], [5, 6]), ([5, 6], [5, 6]), ([9], []), ([], [])])
def test_a_text_ends_with_its_document(tokens: list[int], kept: list[int]) -> None:
    assert until_end(tokens, eos=9) == kept
