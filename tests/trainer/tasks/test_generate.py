"""What a job of `task: generate` may ask for."""

import pytest

from tpujob_trainer.config.schema import TrainerConfig, parse_config
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.tasks.batch.generate import _require_prompts

TEXTS = {"path": "a.jsonl", "textColumn": "text", "weight": 1}


def config(data: dict[str, object]) -> TrainerConfig:
    return parse_config({"task": "generate", "model": {"preset": "tiny"}, "data": data, "generate": {"tokens": 4}})


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"path": "a.jsonl", "messagesColumn": "chat"}, "data.messagesColumn"),
        (
            {"mixture": [TEXTS, {"path": "b.jsonl", "messagesColumn": "chat", "weight": 1}]},
            r"data\.mixture\[1\]\.messagesColumn",
        ),
    ],
    ids=["alone", "in a mixture"],
)
def test_conversations_are_refused(data, field):
    with pytest.raises(ConfigurationError, match=f"spec.trainer.{field}: task: generate continues texts"):
        _require_prompts(config(data).data)


def test_texts_of_a_mixture_are_taken():
    _require_prompts(config({"mixture": [TEXTS, TEXTS]}).data)
