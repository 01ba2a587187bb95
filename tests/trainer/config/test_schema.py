import json
from typing import Any

import pytest

from tpujob_trainer.config.schema import TrainerConfig, configuration_hash, load_config, parse_config
from tpujob_trainer.model.config import PRESETS
from tpujob_trainer.values.errors import ConfigurationError


def block(**changes: Any) -> dict[str, Any]:
    """A complete trainer block; a change of None leaves the key out."""
    whole = {"model": {"preset": "tiny"}, "data": {"path": "gs://b/text"}, "steps": 100} | changes
    return {key: value for key, value in whole.items() if value is not None}


def test_three_keys_are_a_run() -> None:
    config = parse_config(block())
    assert (config.model.preset, config.data.path, config.steps) == ("tiny", "gs://b/text", 100)
    assert config.optimizer.beta2 == 0.95
    assert config.checkpoint.every_seconds == 900


@pytest.mark.parametrize("number", [20e9, 20_000_000_000])
def test_a_float_without_fraction_is_a_whole_number(number: float) -> None:
    tokens = parse_config(block(steps=None, tokens=number)).tokens
    assert tokens == 20_000_000_000
    assert isinstance(tokens, int)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"pth": "x"}}, "spec.trainer.data.pth: unknown key; did you mean path?"),
        ({"batchsize": 4}, "spec.trainer.batchsize: unknown key; did you mean batchSize?"),
        ({"optimizer": {"lr": 1}}, "spec.trainer.optimizer.lr: unknown key; did you mean learningRate?"),
        ({"optimizer": {"zzz": 1}}, "spec.trainer.optimizer.zzz: unknown key; there are name, schedule, "),
        ({"data": {}}, "spec.trainer.data.path: required, and missing"),
        ({"data": "x"}, 'spec.trainer.data: "x" is not a block of keys; write its fields below it'),
        ({"model": None}, "spec.trainer.model: required, and missing"),
        ({"tokens": 5}, "spec.trainer.tokens: excludes steps, as each gives the length of the run; keep one of them"),
        ({"steps": None}, "spec.trainer.steps: is missing; give steps or tokens, the length of the run"),
        ({"steps": 0}, "spec.trainer.steps: 0 is out of range; it must be from 1 to 1000000000"),
        ({"steps": 1.5}, "spec.trainer.steps: 1.5 is not a whole number (from 1 to 1000000000)"),
        (
            {"steps": "2e3"},
            'spec.trainer.steps: "2e3" is not a whole number (from 1 to 1000000000); write 2e3, without quotes',
        ),
        (
            {"steps": None, "tokens": "20B"},
            'spec.trainer.tokens: "20B" is not a whole number (from 1 to 10000000000000000); write 20e9',
        ),
        (
            {"model": {"preset": "llama3-8b"}},
            (
                "spec.trainer.data.tokenizer: required with this model.preset, whose vocabulary is fixed; name its "
                "tokenizer.json or its folder, or write bytes to train on bytes"
            ),
        ),
        ({"steps": True}, "spec.trainer.steps: true is not a whole number (from 1 to 1000000000)"),
        ({"steps": float("nan")}, "spec.trainer.steps: NaN is not a whole number (from 1 to 1000000000)"),
        ({"optimizer": {"beta1": 1}}, "spec.trainer.optimizer.beta1: 1 is out of range; it must be from 0 to 0.99999"),
        ({"data": {"path": 7}}, "spec.trainer.data.path: 7 is not text; write it in quotes"),
        ({"data": {"path": ""}}, "spec.trainer.data.path: empty; write a text, or leave the key out"),
        ({"model": {"preset": "tiny", "tieEmbeddings": 1}}, "spec.trainer.model.tieEmbeddings: 1 is not true or false"),
        (
            {"model": {"preset": "llama3-8"}},
            f'spec.trainer.model.preset: "llama3-8" is not one of {", ".join(PRESETS)}; did you mean llama3-8b?',
        ),
        (
            {"model": {"layers": 2, "embedDim": 64}},
            (
                "spec.trainer.model.heads: required where there is no preset; name one, or give layers, embedDim and "
                "heads"
            ),
        ),
        (
            {"model": {"preset": "tiny", "heads": 3}},
            "spec.trainer.model.heads: 3 does not divide embedDim; change one, or give headDim",
        ),
        (
            {"model": {"preset": "tiny", "kvHeads": 3}},
            "spec.trainer.model.kvHeads: 3 does not divide heads; change one of them",
        ),
        (
            {"evaluation": {"everySteps": 1, "metrics": [{"name": "a:top1"}, {"name": "b:top1"}]}},
            "spec.trainer.evaluation.metrics[1].name: the metric 'top1' is there already; give the",
        ),
        (
            {"evaluation": {"everySteps": 1, "metrics": [{"name": "a:loss"}]}},
            "spec.trainer.evaluation.metrics[0].name: the metric 'loss' is there already; give the",
        ),
        (
            {
                "evaluation": {"everySteps": 1, "metrics": [{"name": "a:top1"}]},
                "checkpoint": {"keepBest": 1, "bestMetric": "top5"},
            },
            "spec.trainer.checkpoint.bestMetric: 'top5' is not evaluated; write evaluation_loss, top1, or name its",
        ),
        (
            {"model": {"preset": "tiny", "headDim": 7}},
            "spec.trainer.model.headDim: 7 is odd; rotary positions turn pairs, so it must be even",
        ),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)
def test_a_wrong_field_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_config(block(**changes))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_null_is_as_if_left_out() -> None:
    assert parse_config(block(batchSize=None) | {"batchSize": None}) == parse_config(block())


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "TPUJOB_CONFIG: not set"), ("{", "TPUJOB_CONFIG: not JSON"), ("[]", "spec.trainer: [] is not a block")],
)
def test_an_unreadable_configuration_is_told(text: str | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match="^" + message.replace("[", r"\[")):
        load_config(text)


def test_the_hash_ignores_the_order_of_keys() -> None:
    assert configuration_hash('{"a": 1, "b": 2}') == configuration_hash('{"b":2,"a":1}')
    assert configuration_hash('{"a": 1}') != configuration_hash('{"a": 2}')


def test_a_configuration_is_frozen() -> None:
    config = parse_config(block())
    assert isinstance(config, TrainerConfig)
    with pytest.raises(AttributeError):
        config.steps = 3  # type: ignore[misc]
