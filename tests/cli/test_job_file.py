"""Job files as people keep them: beside other objects, without a name of their own, from standard input."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wrong_inputs.files import RIGHT
from tpujob.job.job_file import read_document, read_manifest
from tpujob.job.yaml_text import NotYaml, check_readings

CLAIM = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n"
RENDER = [sys.executable, "-m", "tpujob", "render"]


def test_a_job_is_taken_from_among_other_objects(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"{CLAIM}---\n{RIGHT}\n---\nkind: ConfigMap\n---\n")
    assert read_document(file)["metadata"] == {"name": "job"}
    (record,) = caplog.records
    assert "has PersistentVolumeClaim, ConfigMap beside the job" in record.getMessage()
    assert f"kubectl apply -f {file}" in record.getMessage()


def test_a_name_is_made_as_the_api_server_makes_one(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(RIGHT.replace("{name: job}", "{generateName: sweep-}"))
    names = {read_manifest(file)[1].metadata.name for _ in range(20)}
    assert all(re.fullmatch(r"sweep-[a-z0-9]{5}", name) for name in names)
    assert len(names) > 1


@pytest.mark.parametrize("words", [["-"], ["-f", "-"], ["--filename", "/dev/stdin", "-o", "json"]], ids=" ".join)
def test_a_job_is_read_from_standard_input(words: list[str]) -> None:
    done = subprocess.run([*RENDER, *words], input=RIGHT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "jobset.x-k8s.io" in done.stdout


READ_ALIKE = [
    "1", "0", "007", "08", "-5", "+12", "0x1F", "0o17", "0b11", "1_000", "1__0", "1.", "1e3", "20e9", ".5",
    "+.5", "1.5e03", "true", "False", "null", "~", "NULL", "yess", "nO", "tRUE", "v5e-16", "2x4", "12:30",
    "1:1", "0b2", "_1", "a_b", "2024-1", "1.2.3", '"010"', "'on'", '"2024-01-01"', "no-cache", "on_demand",
    ".5a", "00", "-0", ".5_0", "2024-1-1",
]  # fmt: skip
READ_OTHERWISE = [
    "010", "-010", "0_10", "0755", "0O17", "0X1f", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON",
    "n", "N", "no", "No", "NO", "off", "Off", "OFF", "2024-01-01", "2024-01-01T10:00:00Z",
]  # fmt: skip


@pytest.mark.parametrize("text", ["a: {}", "{}: a", "[{}]", "- {}\n", "a:\n  - b: {} # one\n"])
def test_what_kubectl_reads_otherwise_is_refused(text: str) -> None:
    for value in READ_ALIKE:
        check_readings(text.replace("{}", value))
    for value in READ_OTHERWISE:
        with pytest.raises(NotYaml, match=re.escape(f"{value} is read in two ways")):
            check_readings(text.replace("{}", value))
