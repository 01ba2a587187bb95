import dataclasses
import json
from typing import Any

import pytest

from tests.trainer.config.test_schema import block
from tests.trainer.model.weights.make_reference import FOLDER
from tpujob_trainer.config.resolve import ResolvedConfig, resolve
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.model.weights.read_shape import with_shape_read
from tpujob_trainer.values.errors import ConfigurationError


def resolved(num_devices: int = 8, vocabulary: int = 259, platform: str = "cpu", **changes: Any) -> ResolvedConfig:
    return resolve(parse_config(block(**changes)), num_devices=num_devices, vocabulary=vocabulary, platform=platform)


def test_a_preset_gives_every_number() -> None:
    run = resolved(
        num_devices=512,
        vocabulary=128_256,
        platform="tpu",
        model={"preset": "llama3-8b"},
        data={"path": "gs://b/text", "tokenizer": "gs://b/tokenizer.json"},
        steps=None,
        tokens=20e9,
    )
    assert (run.sequence_length, run.batch_size, run.steps) == (8192, 512, 4769)
    assert run.model.compute_dtype == "bfloat16"
    assert (run.optimizer.learning_rate, run.optimizer.warmup_steps) == (3e-4, 476)


@pytest.mark.parametrize(
    ("tokens", "steps"),
    [(1, 1), (2048, 1), (2049, 2), (4096, 2)],
    ids=["less than a batch", "one", "a bit more", "two"],
)
def test_tokens_are_rounded_up_to_batches(tokens: int, steps: int) -> None:
    assert resolved(steps=None, tokens=tokens, batchSize=16, sequenceLength=128).steps == steps


@pytest.mark.parametrize("num_devices", [1, 4, 16])
def test_the_batch_does_not_depend_on_the_devices(num_devices: int) -> None:
    assert resolved(num_devices=num_devices).batch_size == 16


@pytest.mark.parametrize(
    ("num_devices", "changes", "message"),
    [
        (8, {"batchSize": 20}, "batchSize: 20 rows do not divide over 8 devices; 16, 24 and 32 do"),
        (
            8,
            {"batchSize": 4, "mesh": {"context": 1}},
            "batchSize: 4 rows do not divide over 8 devices; 8, 16 and 24 do",
        ),
        (8, {"mesh": {"fsdp": 3}}, "mesh.fsdp: 3 does not divide the 8 devices that are left of a slice"),
        (6, {}, "batchSize: 16 rows (derived: it was not given) do not divide over 6 devices; 12, 18 and 24 do"),
        (
            8,
            {"batchSize": 24, "gradientAccumulation": 2},
            "batchSize: 24 rows do not divide over 8 devices in 2 parts (gradientAccumulation); 16, 32 and 48 do",
        ),
        (
            8,
            {"optimizer": {"warmupSteps": 100}},
            "optimizer.warmupSteps: 100 leaves nothing of the run's steps; it must be less",
        ),
        (8, {"model": {"preset": "tiny", "vocabSize": 64}}, "model.vocabSize: 64 is less than the tokenizer's 259 ids"),
    ],
)
def test_what_does_not_fit_is_refused(num_devices: int, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        resolved(num_devices, **changes)
    assert str(error.value).startswith(f"spec.trainer.{message}")


@pytest.mark.parametrize(
    ("name", "targets", "message"),
    [
        ("deepseek-v3", ["query", "key", "up"], "lora.targets: key, up: the family deepseek-v3 has adapters of query"),
        ("gpt-oss", ["query", "gate", "up"], "lora.targets: gate, up: the experts of gpt-oss have no adapters; name"),
        ("qwen2-moe", ["down"], "lora.targets: down: the experts of qwen2-moe have no adapters; name"),
    ],
)
def test_adapters_that_a_family_has_not_are_refused(name: str, targets: list[str], message: str) -> None:
    source = str(FOLDER / name)
    changes = {"model": {"from": source}, "data": {"path": "x", "tokenizer": source}, "lora": {"targets": targets}}
    given = parse_config(block(**changes))
    read = dataclasses.replace(given, model=with_shape_read(given.model))
    with pytest.raises(ConfigurationError, match=message):
        resolve(read, num_devices=1, vocabulary=96, platform="cpu")


def test_the_vocabulary_is_rounded_up() -> None:
    assert resolved(vocabulary=259).model.vocab_size == 384
    assert resolved(vocabulary=256).model.vocab_size == 256


def test_the_record_is_one_line_with_every_field() -> None:
    text = resolved().as_json()
    assert "\n" not in text
    assert json.loads(text)["optimizer"]["learningRate"] == 3e-3
    assert json.loads(text)["model"]["computeDtype"] == "float32"


def test_arguments_of_the_users_keep_their_names_in_the_record() -> None:
    arguments = {"num_layers": 2, "of_heads": {"head_dim": 4}}
    callbacks = [{"name": "os:getcwd", "arguments": arguments}]
    found = json.loads(
        resolved(callbacks=callbacks, optimizer={"custom": "os:getcwd", "arguments": arguments}).as_json()
    )
    assert found["callbacks"] == [{"name": "os:getcwd", "arguments": arguments, "everySteps": None}]
    assert found["optimizer"]["arguments"] == arguments
