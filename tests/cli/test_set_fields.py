"""Fields that a command line sets, and what it says about those that cannot be."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner, Result

from tests.wrong_inputs.files import BOMB
from tpujob.job.set_fields import with_fields
from tpujob.job.template import command_line
from tpujob.main import app
from tpujob.output.errors import CommandError
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
JOB: dict[str, Any] = {
    "kind": "TpuTrainingJob",
    "metadata": {"name": "a"},
    "spec": {
        "accelerator": "v5e-16",
        "trainer": {"steps": 100, "data": {"mixture": [{"path": "a"}, {"path": "b", "weight": 1}]}},
    },
}


@pytest.mark.parametrize(
    ("setting", "at", "value"),
    [
        ("spec.trainer.steps=200", ["trainer", "steps"], 200),
        ("spec.trainer.tokens=2e9", ["trainer", "tokens"], 2_000_000_000),
        ("spec.trainer.model.arguments.layers=48", ["trainer", "model"], {"arguments": {"layers": 48}}),
        ("spec.trainer.data.mixture[1].weight=0.5", ["trainer", "data", "mixture", 1, "weight"], 0.5),
        ("spec.trainer.data.mixture[0].path=gs://b/x=y", ["trainer", "data", "mixture", 0, "path"], "gs://b/x=y"),
        ("spec.trainer.lora={rank: 4, targets: [query]}", ["trainer", "lora"], {"rank": 4, "targets": ["query"]}),
        ("spec.image=1", ["image"], "1"),
        ("spec.image=[a", ["image"], "[a"),
        ('spec.image="1"', ["image"], "1"),
        ("spec.suspend=true", ["suspend"], True),
        ("spec.trainer.data.tokenizer=", ["trainer", "data"], JOB["spec"]["trainer"]["data"]),
    ],
)
def test_field_is_set_by_its_type(setting: str, at: list[str | int], value: object) -> None:
    before = copy.deepcopy(JOB)
    node: Any = with_fields(JOB, [setting])["spec"]
    for step in at:
        node = node[step]
    assert node == value
    assert type(node) is type(value)
    assert before == JOB


def test_null_removes_a_field_and_later_settings_win() -> None:
    made = with_fields(JOB, ["spec.trainer.steps=5", "spec.trainer.steps=null", "spec.slices=2", "spec.slices=3"])
    assert "steps" not in made["spec"]["trainer"]
    assert made["spec"]["slices"] == 3
    assert with_fields(JOB, ["spec.placement.policyName=null"]) == JOB


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("spec.trainer.steps", "is not PATH=VALUE; write spec.trainer.steps=100"),
        ("=3", "is not PATH=VALUE"),
        ("spec..steps=3", "is not PATH=VALUE"),
        ("trainer.steps=3", "trainer.steps: a job has spec and metadata; did you mean spec.trainer.steps?"),
        ("spec.trainer.steps.x=3", "spec.trainer.steps is 100, which has no fields; set it as a whole"),
        (
            "spec.trainer.data.mixture.path=a",
            "has no fields; name one of its items, as in spec.trainer.data.mixture[0]",
        ),
        ("spec.trainer.data.mixture[2].path=a", "spec.trainer.data.mixture has 2 items, from [0] on"),
        ("spec.trainer.steps[0]=1", "spec.trainer.steps[0]: spec.trainer.steps is 100, and no list"),
        ("spec.trainer.lora={rank: 4", "is not YAML; put text with a colon or bracket in quotes"),
        (f"spec.trainer={BOMB}", "is not YAML; put text with a colon or bracket in quotes (aliases such as *a"),
        ("spec.trainer=" + "[" * 5000, "(blocks and lists are nested too deeply to be read)"),
        ("spec.trainer=" + "[" * 150 + "]" * 150, "(blocks and lists are nested too deeply to be read)"),
        ("spec.trainer.steps=1\n---\n2", "(it has several documents)"),
    ],
)
def test_wrong_setting_is_one_line(setting: str, message: str) -> None:
    with pytest.raises(CommandError) as refusal:
        with_fields(JOB, [setting])
    [line] = refusal.value.problems
    assert line.startswith("--set: ")
    assert message in line


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("verb", ["render", "check", "run", "submit"])
def test_misspelt_field_is_refused_by_every_command_as_in_the_file(verb: str) -> None:
    done = invoke(verb, str(QUICKSTART), "--set", "spec.trainer.step=7")
    assert done.exit_code == 78
    assert "spec.trainer.step: there is no such field; did you mean steps?" in done.stderr


def test_rendered_job_has_the_fields() -> None:
    done = invoke("render", str(QUICKSTART), "--set", "spec.trainer.steps=7", "--set", "spec.image=mine", "-o", "json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == json.loads(rendered_from({"steps": 7}, image="mine"))


def rendered_from(trainer: dict[str, Any], **spec: Any) -> str:
    job = YAML(typ="safe", pure=True).load(QUICKSTART.read_text())
    job["spec"] |= spec
    job["spec"]["trainer"] |= trainer
    return json.dumps(build_jobset(load_job(job), JobSettings()))


def test_line_to_run_it_again_has_them() -> None:
    assert command_line(Path("job.yaml"), [], None, ["spec.trainer.steps=7"]) == (
        "tpujob run job.yaml --set spec.trainer.steps=7"
    )


def test_data_have_no_fields(tmp_path: Path) -> None:
    done = invoke("data", "inspect", str(tmp_path), "--set", "spec.trainer.steps=7")
    assert done.exit_code == 78
    assert f"--set: spec.trainer.steps=7 is for a job; {tmp_path} is data" in done.stderr
