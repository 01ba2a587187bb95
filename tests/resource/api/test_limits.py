"""How large a job may be, and amounts against each other."""

from typing import Any

import pytest

from tests.operator.manifests import container_manifest, manifest
from tpujob_contract.quantity import quantity
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job
from tpujob_resource.topology.errors import InvalidJob


@pytest.mark.parametrize(
    ("spec", "settings", "words"),
    [
        ({"accelerator": "cpu:4x1"}, {"max_pods": 3}, "spec.accelerator: makes 4 pods, .* allows 3 per job"),
        ({"accelerator": "cpu:2x1", "slices": 2}, {"max_pods": 3}, "spec.slices: makes 4 pods"),
        ({"accelerator": "cpu:1x1", "workers": 4}, {"max_pods": 3}, "spec.workers: makes 4 pods"),
        ({"accelerator": "v5e-16", "slices": 2}, {"max_chips": 31}, "spec.slices: makes 32 chips, .* allows 31"),
        ({"accelerator": "v5e-16", "slices": 2}, {"max_chips": 32}, None),
        ({"accelerator": "cpu:4x8"}, {"max_chips": 1}, None),
        ({"accelerator": "tpu7x:16x24x24"}, {}, None),
    ],
    ids=str,
)
def test_the_administrator_limits_a_job(spec: dict[str, Any], settings: dict[str, Any], words: str | None) -> None:
    if words is None:
        load_job(manifest(**spec), JobSettings(**settings))
    else:
        load_job(manifest(**spec))
        with pytest.raises(InvalidJob, match=words):
            load_job(manifest(**spec), JobSettings(**settings))


def test_the_largest_field_is_named() -> None:
    with pytest.raises(InvalidJob, match=r"spec.args: the spec is \d+ bytes of JSON, 6\d+ of them here"):
        load_job(container_manifest(args=["x" * 8000] * 8, command=["y" * 3000]))


@pytest.mark.parametrize(
    ("text", "number"),
    [(8, "8"), ("500m", "0.5"), ("1.5Gi", "1610612736"), ("2k", "2000"), ("3Ti", str(3 * 2**40)), ("x", "None")],
)
def test_a_quantity_is_a_number(text: str | int, number: str) -> None:
    found = quantity(text)
    assert str(found if found is None else found.normalize().__format__("f")) == number


def test_a_setting_that_allows_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="OPERATOR_MAX_PODS=0 allows no job"):
        JobSettings(max_pods=0)
