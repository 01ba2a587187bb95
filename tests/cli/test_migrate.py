"""`tpujob migrate`: which words of a file it changes, and which files it leaves."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tpujob.jobs.migrating import migrated
from tpujob.main import app
from tpujob_contract import ExitCode

JOB = 'apiVersion: tpujob.dev/v1alpha1   # mine\nkind: TpuTrainingJob\nspec: {command: ["tpujob.dev/v1alpha1"]}\n'
NEW_JOB = JOB.replace("v1alpha1  ", "v1beta1  ")
FOREIGN = "apiVersion: argoproj.io/v1alpha1\nkind: Application\n"
TABLE = {
    "a job": (JOB, NEW_JOB),
    "with carriage returns and no end of the last line": (
        JOB.replace("\n", "\r\n")[:-2],
        NEW_JOB.replace("\n", "\r\n")[:-2],
    ),
    "documents of several kinds": (
        f"---\n{FOREIGN}---\n# second\n{JOB}---\n",
        f"---\n{FOREIGN}---\n# second\n{NEW_JOB}---\n",
    ),
    "a list, in quotes": (
        "kind: List\nitems:\n- kind: TpuTrainingJob\n  apiVersion: 'tpujob.dev/v1alpha1'\n",
        "kind: List\nitems:\n- kind: TpuTrainingJob\n  apiVersion: 'tpujob.dev/v1beta1'\n",
    ),
    "JSON": (
        json.dumps({"apiVersion": "tpujob.dev/v1alpha1", "kind": "TpuTrainingJob"}),
        json.dumps({"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob"}),
    ),
    "characters of several bytes before it": (f"# 火😀\n{JOB}", f"# 火😀\n{NEW_JOB}"),
    "an alias": (f"{JOB}a: &x {{b: 1}}\nc: *x\n", f"{NEW_JOB}a: &x {{b: 1}}\nc: *x\n"),
    "a job of the newest version": (NEW_JOB, NEW_JOB),
    "another kind of ours": (
        "apiVersion: tpujob.dev/v1alpha1\nkind: Other\n",
        "apiVersion: tpujob.dev/v1alpha1\nkind: Other\n",
    ),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("text", "wanted"), TABLE.values(), ids=TABLE)
def test_the_words_of_the_version_change_and_nothing_else(text: str, wanted: str) -> None:
    assert migrated(text) == wanted


def test_a_difference_is_printed_and_a_file_is_written_when_asked(tmp_path: Path) -> None:
    job, other = tmp_path / "job.yaml", tmp_path / "other.yaml"
    job.write_bytes(JOB.replace("\n", "\r\n").encode())
    other.write_text(FOREIGN)
    shown = CliRunner().invoke(app, ["migrate", str(job), str(other)])
    assert shown.exit_code == 0
    assert "+apiVersion: tpujob.dev/v1beta1   # mine" in shown.stdout
    assert job.read_bytes() == JOB.replace("\n", "\r\n").encode()
    assert f"{other}: no TpuTrainingJob of an older version" in shown.stderr
    assert CliRunner().invoke(app, ["migrate", str(job), "--write"]).stdout == f"{job}: written\n"
    assert job.read_bytes() == NEW_JOB.replace("\n", "\r\n").encode()


def test_a_file_that_is_none_is_named_and_no_other_is_written(tmp_path: Path) -> None:
    job, template = tmp_path / "job.yaml", tmp_path / "template.yaml"
    job.write_text(JOB)
    template.write_text("{{ if }}\na: b: c\n")
    refused = CliRunner().invoke(app, ["migrate", "--write", str(job), str(template)])
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert f"{template}: not YAML" in refused.stderr
    assert job.read_text() == JOB


def test_a_difference_says_that_the_last_line_has_no_end(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"apiVersion": "tpujob.dev/v1alpha1", "kind": "TpuTrainingJob"}))
    removed, note, added, again = CliRunner().invoke(app, ["migrate", str(job)]).stdout.splitlines()[3:]
    assert (removed[0], added[0], "v1beta1" in added) == ("-", "+", True)
    assert note == again == "\\ No newline at end of file"
