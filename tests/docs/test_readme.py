"""What the README and the examples say is true of the code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tpujob_operator.settings import Settings
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.rules.load import load_job

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def manifests() -> list[tuple[str, str]]:
    blocks = re.findall(r"```yaml\n(apiVersion: tpujob\.dev.*?)```", README, re.DOTALL)
    return [(f"README block {i}", b) for i, b in enumerate(blocks)] + [
        (p.name, p.read_text()) for p in sorted((ROOT / "examples").glob("*.yaml"))
    ]


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in manifests()])
def test_every_job_shown_is_accepted(text):
    manifest = YAML(typ="safe", pure=True).load(text)
    if "command" in manifest["spec"]:
        # `tpujob run` needs no image, and says so beside it.
        manifest["spec"].setdefault("image", "registry.example/own:1")
    job = load_job(manifest)
    assert build_jobset(job, Settings())["kind"] == "JobSet"


def test_the_first_example_is_256_chips_in_two_slices():
    jobset = build_jobset(load_job(YAML(typ="safe", pure=True).load(manifests()[0][1])), Settings())
    (workers,) = jobset["spec"]["replicatedJobs"]
    assert (workers["replicas"], workers["template"]["spec"]["parallelism"]) == (2, 64)


def test_make_help_lists_the_targets():
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("help", "demo", "test", "lint", "fmt", "cluster", "bench"):
        assert re.search(rf"^  make {target}\b", shown, re.MULTILINE)


@pytest.mark.parametrize("command", [["run"], ["render"], ["data", "from-folder"]])
def test_the_commands_shown_explain_themselves(command):
    shown = subprocess.run(
        [sys.executable, "-m", "tpujob", *command, "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "Usage:" in shown


def test_render_prints_the_jobset():
    shown = subprocess.run(
        [sys.executable, "-m", "tpujob", "render", "examples/quickstart.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert YAML(typ="safe", pure=True).load(shown)["metadata"]["name"] == "quickstart"
