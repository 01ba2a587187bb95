"""Contradictions in the trainer block, each said in one sentence; those of tests/wrong_inputs are said there."""

from typing import Any

import pytest

from tests.operator.manifests import TRAINER, manifest
from tpujob_resource.rules.load import load_job
from tpujob_resource.rules.trainer_rules import presets, trainer_contradictions
from tpujob_resource.topology.errors import InvalidJob

STEPS = {key: value for key, value in TRAINER.items() if key != "steps"}
TINY_TOKENS: int = presets()["tiny"]["batchTokens"]
NO_PRESET = {"layers": 2, "embedDim": 96, "heads": 6}
CASES: dict[str, tuple[dict[str, Any], int | None, str | None]] = {
    "fine": (TRAINER, 8, None),
    "extraction has no length": ({**STEPS, "task": "extract", "extract": {"layers": ["1"]}}, None, None),
    "two sources for evaluation": (
        {**TRAINER, "evaluation": {"everySteps": 5, "data": {"dataset": "y", "mixture": []}}},
        8,
        "spec.trainer.evaluation.data: path, dataset and mixture exclude each other",
    ),
    "a preset's vocabulary without its tokenizer": (
        {**TRAINER, "model": {"preset": "llama3-8b"}, "data": {"path": "x"}},
        8,
        "spec.trainer.data.tokenizer: required with this model.preset, whose vocabulary is fixed",
    ),
    "a preset's vocabulary on bytes": (
        {**TRAINER, "model": {"preset": "llama3-8b"}, "data": {"path": "x", "tokenizer": "bytes"}},
        8,
        None,
    ),
    "weights without their tokenizer": (
        {**TRAINER, "model": {"from": "gs://b/llama"}, "data": {"path": "x"}},
        8,
        "spec.trainer.data.tokenizer: required with model.from",
    ),
    "warm-up one step short": ({**TRAINER, "optimizer": {"warmupSteps": 9}}, 8, None),
    "key-value heads": (
        {**TRAINER, "model": {**NO_PRESET, "kvHeads": 4}, "batchSize": 8},
        8,
        "spec.trainer.model.kvHeads: 4 does not divide heads",
    ),
    "heads and width": (
        {**TRAINER, "model": {**NO_PRESET, "heads": 7}, "batchSize": 8},
        8,
        "spec.trainer.model.heads: 7 does not divide embedDim",
    ),
    "rows of the preset": (
        TRAINER,
        12,
        "batchSize: 16 rows (the default of preset tiny) do not divide over 12",
    ),
    "fewer rows of the preset than devices": (TRAINER, 32, None),
    "fewer rows than devices": ({**TRAINER, "batchSize": 4}, 8, None),
    "few rows, and a row that is not divided": (
        {**TRAINER, "batchSize": 4, "mesh": {"context": 1}},
        8,
        "; 8, 16 and 24 do",
    ),
    "an axis that takes no rows": (
        {**TRAINER, "batchSize": 6, "mesh": {"tensor": 4}},
        16,
        "6 rows do not divide over 4 groups of 16 devices; 4, 8 and 12 do",
    ),
    "a mesh of too many devices": (
        {**TRAINER, "mesh": {"tensor": 2, "context": 8}},
        8,
        "spec.trainer.mesh.tensor: tensor x context x expert is 16, which does not divide the 8 devices of a slice",
    ),
    "rows without a preset": (
        {**TRAINER, "model": NO_PRESET},
        96,
        "batchSize: 256 rows (the default) do not divide over 96 devices; 192, 288 and 384 do",
    ),
    "rows in parts": (
        {**TRAINER, "batchSize": 40, "gradientAccumulation": 4},
        8,
        "do not divide over 8 devices in 4 parts (gradientAccumulation); 32, 64 and 96 do",
    ),
    "rows of workers": ({**TRAINER, "batchSize": 20}, None, None),
    "a batch that no index reaches": (
        {**TRAINER, "batchSize": 2**20, "sequenceLength": 2**20},
        8,
        "spec.trainer.batchSize: 1048576 rows of 1048576 tokens",
    ),
    "the largest batch": ({**TRAINER, "batchSize": 1, "sequenceLength": 2**31 - 1}, 1, None),
    "one token more": (
        {**TRAINER, "batchSize": 1, "sequenceLength": 2**31},
        1,
        "1 rows of 2147483648 tokens are 2147483648 in one batch; at most 2147483647, so 0 rows",
    ),
    "rows of the preset, shorter": (
        {**TRAINER, "sequenceLength": TINY_TOKENS // 48},
        32,
        "batchSize: 48 rows (the default of preset tiny) do not divide over 32 devices; 32, 64 and 96 do",
    ),
    "rows longer than the batch of the preset": (
        {**TRAINER, "sequenceLength": TINY_TOKENS * 2},
        3,
        "batchSize: 1 rows (the default of preset tiny) do not divide over 3 devices; 3, 6 and 9 do",
    ),
    "preset that is no name": ({**TRAINER, "model": {"preset": ["tiny"]}}, 8, None),
    "model without heads": (
        {**TRAINER, "model": {**NO_PRESET, "heads": None, "kvHeads": 4}},
        8,
        "spec.trainer.model.heads: required",
    ),
    "wrong types are the schema's": (
        {"steps": "x", "model": 3, "data": [], "optimizer": None, "batchSize": True},
        8,
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_contradiction_is_one_sentence(name: str) -> None:
    block, devices, words = CASES[name]
    found = list(trainer_contradictions(block, devices=devices))
    assert len(found) == (words is not None)
    if words is not None:
        assert words in found[0]


@pytest.mark.parametrize(
    ("spec", "devices"),
    [({"accelerator": "tpu7x-8"}, 8), ({"accelerator": "v4-16"}, 8), ({"accelerator": "v5e-16", "slices": 3}, 48)],
)
def test_devices_of_all_slices_count(spec: dict[str, Any], devices: int) -> None:
    with pytest.raises(InvalidJob, match=f"7 rows do not divide over {devices} devices"):
        load_job(manifest(trainer={**TRAINER, "batchSize": 7, "mesh": {"context": 1}}, **spec))


def test_presets_are_published_with_the_schema() -> None:
    assert presets()["tiny"] == {"heads": 4, "kvHeads": 2, "sequenceLength": 128, "batchTokens": 2048}
