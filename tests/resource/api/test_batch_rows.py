"""The operator refuses a mesh or a batch exactly where the trainer does, in the same words."""

import itertools
from typing import Any

import pytest

from tests.operator.manifests import manifest
from tpujob_resource.rules.load import load_job
from tpujob_resource.rules.slice_counts import possible_counts
from tpujob_resource.rules.trainer_rules import trainer_contradictions
from tpujob_resource.topology.errors import InvalidJob
from tpujob_trainer.config.resolve import resolve
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.values.errors import ConfigurationError

WIDE = {"layers": 1, "embedDim": 3840, "heads": 24, "kvHeads": 24, "mlpDim": 3840, "experts": 24, "expertsPerToken": 2}
"""A model whose dimensions everything here divides, so that its own refusals are out of the way."""
MESHES: tuple[dict[str, int], ...] = (
    {},
    {"tensor": 2},
    {"tensor": 4},
    {"context": 1},
    {"context": 2},
    {"context": 4, "tensor": 2},
    {"context": 3},
    {"expert": 2},
    {"expert": 4, "tensor": 2},
    {"expert": 2, "context": 2},
    {"fsdp": 2},
    {"fsdp": 4, "tensor": 2},
    {"fsdp": 3},
    {"tensor": 3},
)
DEVICES = ((1, 1), (8, 1), (8, 2), (12, 1), (16, 4), (64, 2))
"""All devices, and the slices over which they lie."""
ROWS = (None, 1, 3, 4, 8, 12, 20, 64)

LENGTHS = ((16, 1), (15, 1), (16, 2))
"""Positions of a row, and parts of a batch."""


def block(mesh: dict[str, int], rows: int | None, length: int, parts: int) -> dict[str, Any]:
    batch = {} if rows is None else {"batchSize": rows}
    model = {**WIDE, "family": "mixtral"}
    data = {"path": "/data/*.txt"}
    run = {"steps": 10, "sequenceLength": length, "gradientAccumulation": parts}
    return {"model": model, "data": data, "mesh": mesh, **run, **batch}


def trainers_refusal(given: dict[str, Any], devices: int, slices: int) -> str | None:
    try:
        resolve(parse_config(given), num_devices=devices, vocabulary=256, platform="cpu", slices=slices)
    except ConfigurationError as error:
        return str(error).replace("(derived: it was not given)", "(the default)")
    return None


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_operator_and_trainer_refuse_the_same(mesh: dict[str, int]) -> None:
    refused = 0
    for (devices, slices), rows, (length, parts) in itertools.product(DEVICES, ROWS, LENGTHS):
        given = block(mesh, rows, length, parts)
        expected = trainers_refusal(given, devices, slices)
        found = list(trainer_contradictions(given, devices=devices, slices=slices))
        assert found == ([] if expected is None else [expected]), (devices, slices, rows, length, parts)
        refused += expected is not None
    assert 0 < refused < len(DEVICES) * len(ROWS) * len(LENGTHS)


@pytest.mark.parametrize(
    ("fields", "spec"),
    [
        ({"batchSize": 4}, {"accelerator": "v5e-8"}),
        ({"batchSize": 4, "mesh": {"tensor": 2}}, {"accelerator": "v5e-8"}),
        ({"batchSize": 8, "mesh": {"context": 4}}, {"accelerator": "v5e-16", "slices": 2}),
        ({"batchSize": 12, "mesh": {"context": 2, "tensor": 2}}, {"accelerator": "v5e-16"}),
    ],
    ids=["a batch of few rows", "half of the devices take rows", "long rows of two slices", "a quarter"],
)
def test_axes_without_rows_do_not_count(fields: dict[str, Any], spec: dict[str, Any]) -> None:
    trainer = {"model": {"preset": "tiny"}, "data": {"path": "gs://bucket/a"}, "steps": 10, **fields}
    load_job(manifest(trainer=trainer, **spec))


def test_an_impossible_mesh_is_refused_before_any_pod() -> None:
    trainer = {"model": {"preset": "tiny"}, "data": {"path": "gs://bucket/a"}, "steps": 10, "mesh": {"tensor": 3}}
    with pytest.raises(InvalidJob, match=r"spec\.trainer\.mesh\.tensor: tensor x context x expert is 3"):
        load_job(manifest(accelerator="v5e-8", trainer=trainer))


def test_fewer_slices_are_possible_with_such_a_mesh() -> None:
    trainer = {"model": {"preset": "tiny"}, "data": {"path": "gs://bucket/a"}, "steps": 10, "batchSize": 8}
    elastic: dict[str, Any] = {"slices": 4, "minSlices": 1, "checkpointDir": "gs://bucket/c", "accelerator": "v5e-8"}
    job = load_job(manifest(trainer={**trainer, "mesh": {"context": 4}}, **elastic))
    assert possible_counts(job) == (4, 2, 1)
