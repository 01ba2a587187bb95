"""Golden manifests: NAME.job.yaml beside NAME.jobset.yaml, compared whole. UPDATE_GOLDEN=1 rewrites the latter."""

import os
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job

FOLDER = Path(__file__).with_name("golden")
NAMES = sorted(path.name.removesuffix(".job.yaml") for path in FOLDER.glob("*.job.yaml"))
SETTINGS = JobSettings(
    trainer_image="registry.example/tpujob-trainer:1", operator_image="registry.example/tpujob-operator:1"
)


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 150
    return yaml


def _made(name: str) -> dict[str, Any]:
    job = load_job(_yaml().load(FOLDER / f"{name}.job.yaml"))
    return build_jobset(job, SETTINGS, incarnation=2 if name == "retried" else 1)


def golden(name: str) -> dict[str, Any]:
    """The JobSet that is expected of this job."""
    expected: dict[str, Any] = _yaml().load(FOLDER / f"{name}.jobset.yaml")
    return expected


@pytest.mark.parametrize("name", NAMES)
def test_golden_job_gives_its_jobset(name: str) -> None:
    made, path = _made(name), FOLDER / f"{name}.jobset.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        with path.open("w", encoding="utf-8") as file:
            _yaml().dump(made, file)
    assert made == golden(name)


def test_golden_expectations_all_have_a_job() -> None:
    expected = sorted(path.name.removesuffix(".jobset.yaml") for path in FOLDER.glob("*.jobset.yaml"))
    assert expected == NAMES
