"""`tpujob explain`: a field by its path or the end of it, and what is below."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tpujob.job.fields import job_fields
from tpujob.main import app


def explain(*words: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(app, ["explain", *words])
    return done.exit_code, (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("path", ["data.path", "trainer.data.path", "spec.trainer.data.path"])
def test_field_is_found_by_any_of_its_paths(path: str) -> None:
    code, lines = explain(path)
    assert (code, lines[0]) == (0, "spec.trainer.data.path: string, at most 8192 characters")
    assert lines[1].startswith("  A file, a folder (all its levels) or a pattern;")


def test_fields_below_are_listed_with_their_first_sentence() -> None:
    code, lines = explain("optimizer")
    assert (code, lines[0]) == (0, "spec.trainer.optimizer: mapping")
    assert "  learningRate               Peak learning rate" in lines
    assert max(map(len, lines)) <= 100


def test_items_of_a_list_have_fields_too() -> None:
    assert explain("volumes[].name")[1][0] == "spec.volumes[].name: string, at most 63 characters, required"
    assert any(line.split()[0] == "name" for line in explain("volumes")[1][2:])


def test_an_end_that_several_have_lists_them() -> None:
    code, lines = explain("everySteps")
    assert code == 0
    assert {line.split()[0] for line in lines} >= {
        "spec.trainer.checkpoint.everySteps",
        "spec.trainer.evaluation.everySteps",
    }


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("prefetchBatchs", "prefetchBatchs: is no field of a job; did you mean prefetchBatches?"),
        ("data.pth", "data.pth: is no field of a job; did you mean path?"),
        # The end of a path, not of a name.
        ("Steps", "Steps: is no field of a job; did you mean steps?"),
        ("zzzzzz", "zzzzzz: is no field of a job; `tpujob explain` lists those of spec"),
    ],
)
def test_unknown_field_is_refused_with_the_nearest(path: str, said: str) -> None:
    assert explain(path) == (78, [said])


def test_every_field_has_a_kind_and_is_found_by_its_own_path() -> None:
    fields = job_fields()
    assert len(fields) > 350
    assert [field.path for field in fields if not field.kind] == []
    assert explain()[1][0].split()[0] == "spec.accelerator"
    for field in fields[:: len(fields) // 20]:
        done = CliRunner().invoke(app, ["explain", field.path, "-o", "json"])
        assert [each["path"] for each in json.loads(done.stdout)] == [field.path]
