"""`tpujob new` writes jobs that are accepted as they are."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tpujob.job.job_file import read_job
from tpujob.main import app


@pytest.mark.parametrize(
    ("answers", "field", "value"),
    [
        ("llama\nv5e-16\ngs://b/x/*.parquet\nllama3-8b\n", "path", "gs://b/x/*.parquet"),
        ("\n\n\n\n", "path", "data/*.parquet"),
        ("edu\ncpu:1x4\nHuggingFaceFW/fineweb-edu\nsmall\n", "dataset", "HuggingFaceFW/fineweb-edu"),
    ],
    ids=["on TPUs", "all defaults", "a hub name"],
)
def test_four_answers_are_a_job(tmp_path: Path, monkeypatch, answers: str, field: str, value: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["new"], input=answers)
    assert done.exit_code == 0, done.output
    job = read_job(Path("job.yaml"))
    assert job.spec.trainer is not None
    assert job.spec.trainer["data"][field] == value
    assert (job.spec.checkpoint_dir is None) == job.spec.accelerator.startswith("cpu:")
    again = CliRunner().invoke(app, ["new"], input=answers)
    assert again.exit_code == 78
    assert "is there already" in again.output


@pytest.mark.usefixtures("answered_here")
@pytest.mark.parametrize("preset", ["tiny", "small"])
def test_a_job_for_a_laptop_has_quick_steps(tmp_path: Path, monkeypatch, preset: str) -> None:
    monkeypatch.chdir(tmp_path)
    answers = ["new", "--name", "a", "--accelerator", "cpu:2x2", "--data", "x/*", "--preset", preset]
    assert CliRunner().invoke(app, answers).exit_code == 0
    checked = CliRunner().invoke(app, ["check", "job.yaml"])
    assert "on CPUs" not in checked.output
    job = Path("job.yaml")
    job.write_text("".join(line for line in job.read_text().splitlines(True) if "batchSize" not in line))
    slow = CliRunner().invoke(app, ["check", "job.yaml"])
    assert ("takes minutes or hours on CPUs; for a trial give batchSize: 4" in slow.output) == (preset == "small")


def test_a_file_that_cannot_be_written_is_named() -> None:
    answers = ["--name", "a", "--accelerator", "cpu:1x1", "--data", "x", "--preset", "tiny"]
    done = CliRunner().invoke(app, ["new", "/dev/null/job.yaml", *answers])
    assert done.exit_code == 78
    assert "JOB.YAML: /dev/null/job.yaml: Not a directory" in done.output


def test_a_wrong_answer_leaves_no_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["new", "--name", "a", "--accelerator", "v4-12", "--data", "x", "--preset", "tiny"])
    assert done.exit_code == 78
    assert "spec.accelerator" in done.output
    assert not Path("job.yaml").exists()
