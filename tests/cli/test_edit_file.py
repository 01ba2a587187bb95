"""Fields are put into a job's file; comments, order and the rest stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tpujob.job.edit_file import write_trainer_fields
from tpujob.output.errors import CommandError

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAINING = [path for path in sorted(EXAMPLES.glob("[01]*.yaml")) if "\n  trainer:" in path.read_text()]
TEXT = """\
# a job of ours
apiVersion: tpujob.example/v1alpha1
kind: TpuTrainingJob
metadata:
    name: "llama"   # quoted
spec:
    accelerator: v5p-64
    trainer:
        model: {preset: llama3-8b, remat: full}  # as published
        tokens: 20e9
        batchSize: 64

        mesh:
            fsdp: 32  # all
"""
FIELDS = {"mesh.fsdp": 16, "mesh.tensor": 2, "model.remat": None, "model.rematSave": ["attention"]}


def test_comments_and_order_stay(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(TEXT)
    write_trainer_fields(file, {**FIELDS, "gradientAccumulation": 2})
    before, after = TEXT.splitlines(), file.read_text().splitlines()
    assert [line for line in before if line not in after] == [
        "        model: {preset: llama3-8b, remat: full}  # as published",
        "            fsdp: 32  # all",
    ]
    assert [line for line in after if line not in before] == [
        "        model: {preset: llama3-8b, rematSave: [attention]} # as published",
        "            fsdp: 16  # all",
        "            tensor: 2",
        "        gradientAccumulation: 2",
    ]


@pytest.mark.parametrize("items", ["- a\n- b", "  - a\n  - b", "    - a\n    - b"], ids=["0", "2", "4"])
def test_lists_keep_their_indentation(items: str, tmp_path: Path) -> None:
    below = "\n".join(f"  {line}" for line in items.splitlines())
    text = f"kind: TpuTrainingJob\nspec:\n  command:\n{below}\n  trainer:\n    steps: 5\n"
    file = tmp_path / "job.yaml"
    file.write_text(text)
    write_trainer_fields(file, {"steps": 6})
    assert file.read_text() == text.replace("steps: 5", "steps: 6")


@pytest.mark.parametrize("example", TRAINING, ids=lambda path: path.name)
def test_an_example_gets_one_more_line(example: Path, tmp_path: Path) -> None:
    file = tmp_path / example.name
    text = example.read_text().replace("[{name: registry}]", "[name: registry]")
    file.write_text(text)
    write_trainer_fields(file, {"gradientAccumulation": 2})
    added = [line for line in file.read_text().splitlines() if line not in text.splitlines()]
    assert added == ["    gradientAccumulation: 2"]
    assert file.read_text().replace(added[0] + "\n", "") == text


def test_a_json_job_stays_json(tmp_path: Path) -> None:
    trainer = {"model": {"preset": "llama3-8b"}, "steps": 10}
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"kind": "TpuTrainingJob", "spec": {"trainer": trainer}}))
    write_trainer_fields(file, {"mesh.fsdp": 16})
    assert json.loads(file.read_text())["spec"]["trainer"] == {**trainer, "mesh": {"fsdp": 16}}


def test_a_form_that_is_not_written_says_what_to_set(tmp_path: Path) -> None:
    """An alias is one block in two places: a change for one of them would reach the other."""
    text = """\
kind: TpuTrainingJob
metadata: {annotations: &mesh {fsdp: 8}}
spec: {trainer: {steps: 10, mesh: *mesh}}
"""
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(CommandError, match=r"set below spec\.trainer: mesh\.fsdp: 16"):
        write_trainer_fields(file, {"mesh.fsdp": 16})
    assert file.read_text() == text
