"""What the name of an accelerator amounts to is said where a job is rendered, too."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from tests.operator.manifests import container_manifest, manifest
from tpujob.main import app


@pytest.mark.parametrize(("accelerator", "words"), [("v4-16", "note: v4-16 is 8 chips"), ("v5e-16", "")])
def test_ambiguous_accelerator_is_explained(tmp_path: Path, accelerator: str, words: str) -> None:
    job = container_manifest(accelerator=accelerator, checkpointDir="gs://bucket/run")
    YAML().dump(job, tmp_path / "job.yaml")
    done = CliRunner().invoke(app, ["render", str(tmp_path / "job.yaml")])
    assert done.exit_code == 0
    assert done.stderr.startswith(words)
    assert bool(done.stderr) == bool(words)
    assert done.stdout.startswith("apiVersion")


@pytest.mark.parametrize("query", ["?X-Goog-Signature=canary7f3a", ""], ids=["signed", "plain"])
def test_query_that_render_cuts_is_noted(tmp_path: Path, query: str) -> None:
    data = {"path": f"https://host/a.parquet{query}", "tokenizer": "bytes"}
    job = manifest(checkpointDir="gs://bucket/run")
    job["spec"]["trainer"] = {"model": {"preset": "tiny"}, "steps": 2, "data": data}
    YAML().dump(job, tmp_path / "job.yaml")
    done = CliRunner().invoke(app, ["render", str(tmp_path / "job.yaml")])
    assert done.exit_code == 0, done.stderr
    assert "canary7f3a" not in done.output
    assert ("note: an address in this job has a query" in done.stderr) == bool(query)
