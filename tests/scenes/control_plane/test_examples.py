"""A real API server takes every example, and JobSet's own webhooks take what becomes of it."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.harness.jobs import Jobs
from tpujob_operator.base.settings import Settings
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.rules.load import load_job

EXAMPLES = Path(__file__).parents[3] / "examples"
FILES = sorted(EXAMPLES.rglob("*.yaml"))

pytestmark = pytest.mark.control_plane


def test_the_api_server_takes_every_example(jobs: Jobs) -> None:
    files = [f"--filename={file}" for file in FILES]
    said = jobs.plane.kubectl("apply", "-n", jobs.namespace, "--dry-run=server", "--validate=strict", *files)
    assert len(said.splitlines()) == len(FILES) >= 20


def test_jobset_takes_what_becomes_of_every_example(jobs: Jobs, tmp_path: Path) -> None:
    for file in FILES:
        document = YAML(typ="safe", pure=True).load(file.read_text())
        document["metadata"]["namespace"] = jobs.namespace
        YAML().dump(build_jobset(load_job(document), Settings()), tmp_path / f"{file.parent.name}-{file.name}")
    said = jobs.plane.kubectl("create", "-n", jobs.namespace, "--dry-run=server", f"--filename={tmp_path}")
    assert len(said.splitlines()) == len(FILES)
