"""What `tpujob render` says beside the JobSet: on stderr alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.operator.manifests import TRAINER, container_manifest, manifest
from tpujob.main import app

SAVED = {"checkpointDir": "gs://bucket/run"}
DOUBTFUL: dict[str, Any] = {
    "accelerator": "v5e-8",
    "trainer": TRAINER | {"data": {"path": "data/*.parquet"}, "batchSize": 8},
}


def reads(path: str) -> dict[str, Any]:
    return manifest(trainer=TRAINER | {"data": {"path": path, "tokenizer": "bytes"}}, **SAVED)


@pytest.mark.parametrize(
    ("job", "lines"),
    [
        (container_manifest(accelerator="v4-16", **SAVED), ["note: v4-16 is 8 chips"]),
        (container_manifest(accelerator="v5e-16", **SAVED), []),
        (reads("https://host/a.parquet?X-Goog-Signature=canary7f3a"), ["note: an address in this job has a query"]),
        (reads("https://host/a.parquet"), []),
        (
            manifest(**DOUBTFUL),
            [
                "note: v5e-8 is 8 chips on 1 host",
                "warning: spec.checkpointDir: is missing",
                'warning: spec.trainer.data.path: "data/*.parquet" is relative',
            ],
        ),
    ],
    ids=["an ambiguous name", "a clear name", "a signed address", "an address", "doubtful values"],
)
def test_notes_stand_beside_the_jobset(tmp_path: Path, job: dict[str, Any], lines: list[str]) -> None:
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    done = CliRunner().invoke(app, ["render", str(tmp_path / "job.yaml"), "-o", "json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == "JobSet"
    assert "canary7f3a" not in done.output
    said = done.stderr.splitlines()
    assert [line[: len(begin)] for line, begin in zip(said, lines, strict=True)] == lines
