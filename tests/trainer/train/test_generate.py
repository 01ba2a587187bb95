from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax
import pytest

from tests.trainer.model import plain_decoder
from tests.trainer.train.test_step import SHAPE
from tpujob_trainer.config.schema import SampleConfig
from tpujob_trainer.data import DataConfig
from tpujob_trainer.data.text.chat import ChatTemplate
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.train import generate
from tpujob_trainer.train.generate import make_sampler, padded, prompts_of, until_end
from tpujob_trainer.train.optimizer import is_decayed
from tpujob_trainer.train.step import init_state
from tpujob_trainer.values.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("compiled_once")

PROMPT = [7, 8, 3]


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(SHAPE, build_mesh(slices=1, devices=jax.devices()[:2]))


@pytest.fixture(scope="module")
def weights(model: Model) -> Any:
    """Fresh ones are so small that the last token alone decides."""
    fresh = init_state(model, optax.identity(), 3).weights
    return jax.tree.map(lambda weight, decays: (10 if decays else 1) * np.asarray(weight), fresh, is_decayed(fresh))


@pytest.mark.parametrize("gathered", ["once", "for each token"])
def test_the_likeliest_token_follows_each_time(
    model: Model, weights: Any, gathered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if gathered == "for each token":
        monkeypatch.setattr(generate, "GATHERED_ONCE_BYTES", 0)
    config = SampleConfig(prompt="not used here", tokens=9, temperature=0)
    sampler = make_sampler(model, longest=len(PROMPT) + 2, config=config, seed=0)
    found = np.asarray(sampler(weights, *padded(PROMPT, len(PROMPT) + 2))).tolist()
    tokens = [*PROMPT, *found]
    length = len(tokens)
    scores = jax.jit(lambda ids: plain_decoder.logits(weights, ids, np.arange(length), np.ones(length, int), SHAPE))
    likeliest = np.argmax(scores(np.array(tokens)), axis=-1).tolist()
    assert found == likeliest[len(PROMPT) - 1 : -1], "each is the one after those before it"
    assert len(set(tokens)) > len(PROMPT), tokens


def test_prompts_of_any_length_share_a_program(model: Model, weights: Any) -> None:
    config = SampleConfig(prompts=("not used", "here"), tokens=5, temperature=0.5)
    shared = make_sampler(model, longest=6, config=config, seed=1)
    for prompt in ([7], [1, 2, 3, 4, 5, 6]):
        alone = shared if len(prompt) == 6 else make_sampler(model, longest=len(prompt), config=config, seed=1)
        expected = np.asarray(alone(weights, *padded(prompt, len(prompt))))
        assert np.asarray(shared(weights, *padded(prompt, 6))).tolist() == expected.tolist()
    assert shared._cache_size() == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(("tokens", "kept"), [([5, 6, 9, 7], [5, 6]), ([5, 6], [5, 6]), ([9], []), ([], [])])
def test_a_text_ends_with_its_document(tokens: list[int], kept: list[int]) -> None:
    assert until_end(tokens, (4, 9)) == kept


CHATS = DataConfig(path="a.jsonl", messages_column="chat")
WITH_EFFORT = DataConfig(path="a.jsonl", messages_column="chat", chat_template_arguments={"effort": "high"})
TEXTS = DataConfig(path="a.jsonl")
CHATML = (
    "{{ bos_token }}{{ effort }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


class Characters:
    """A tokenizer whose tokens are characters."""

    bos, eos = 1, 2

    def __init__(self, template: str | None = CHATML) -> None:
        self.chat_template = template and ChatTemplate.compiled(template, {"bos_token": "\x01"}, "characters")

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[ord(character) for character in text] for text in texts]


def prompts(data: DataConfig, tokenizer: Characters, **sample: Any) -> list[str]:
    config = SampleConfig(prompts=("Hi", "Why?"), tokens=4, **sample)
    found = prompts_of(config, tokenizer, data, sequence_length=64)  # type: ignore[arg-type]
    assert all("".join(map(chr, each.tokens)).endswith(each.text) for each in found)
    return ["".join(map(chr, each.tokens)) for each in found]


@pytest.mark.parametrize(
    ("data", "sample", "wanted"),
    [
        (TEXTS, {}, ["\x01Hi", "\x01Why?"]),
        (CHATS, {}, ["\x01<user>Hi<assistant>", "\x01<user>Why?<assistant>"]),
        (CHATS, {"chat": False}, ["\x01Hi", "\x01Why?"]),
        (WITH_EFFORT, {}, ["\x01high<user>Hi<assistant>", "\x01high<user>Why?<assistant>"]),
        (
            TEXTS,
            {"chat": True, "system": "S"},
            ["\x01<system>S<user>Hi<assistant>", "\x01<system>S<user>Why?<assistant>"],
        ),
    ],
    ids=["texts", "conversations", "conversations, but not asked", "conversations with arguments", "texts, but asked"],
)
def test_prompts_are_written_as_the_data_are(data: DataConfig, sample: dict[str, Any], wanted: list[str]) -> None:
    assert prompts(data, Characters(), **sample) == wanted


@pytest.mark.parametrize(
    ("template", "sample", "refusal"),
    [
        (None, {}, r"sample.chat: the tokenizer has no chat template; .* write chat: false"),
        ("{{ raise_exception('No system') if messages[0].role == 'system' }}", {"system": "S"}, r"sample: .*No system"),
        (CHATML + "x" * 60, {}, r"sample.tokens: 4 and the prompts\[0\]'s \d+ are more than sequenceLength \(64\)"),
    ],
)
def test_prompts_that_cannot_be_written_are_refused(template: str | None, sample: dict[str, Any], refusal: str) -> None:
    with pytest.raises(ConfigurationError, match=refusal):
        prompts(CHATS, Characters(template), **sample)
