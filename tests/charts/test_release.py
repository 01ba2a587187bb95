"""The release workflow: linted, without rights that it does not use, and about the images and the chart that exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.charts.test_dockerfile import DOCKERFILE, FINAL
from tools.localcluster import binaries
from tools.localcluster.toolchain import ToolsUnavailable

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github"
FILE = FOLDER / "workflows" / "release.yaml"
TEXT = FILE.read_text()
WORKFLOW = YAML(typ="safe").load(TEXT)
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_actionlint_finds_nothing():
    try:
        program = binaries.path("actionlint")
    except ToolsUnavailable as reason:
        pytest.skip(f"no actionlint: {reason}")
    done = subprocess.run([program, "-shellcheck=", "-pyflakes=", FILE], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")


def test_zizmor_finds_nothing():
    zizmor = Path(sys.executable).with_name("zizmor")
    done = subprocess.run([zizmor, "--offline", "--no-progress", "--pedantic", FOLDER], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "WARN" not in done.stderr


def test_actions_are_pinned_by_content():
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", each) for each in used)


def test_rights_are_given_to_single_jobs():
    assert WORKFLOW["permissions"] == {}
    given = {name: job["permissions"] for name, job in WORKFLOW["jobs"].items()}
    assert given.pop("test") == {"contents": "read"}
    assert all(WORKFLOW["jobs"][name]["environment"] == "release" for name in given)
    assert given.pop("wheels") == {"contents": "write", "id-token": "write"}
    assert all(rights == {"contents": "read", "packages": "write", "id-token": "write"} for rights in given.values())


def test_every_image_is_built_with_sbom_and_provenance_and_signed():
    images = WORKFLOW["jobs"]["images"]
    assert images["strategy"]["matrix"]["part"] == FINAL
    commands = "\n".join(step.get("run", "") for step in images["steps"])
    assert {"--sbom=true", "--provenance=mode=max", "--push"} <= set(commands.split())
    arguments = re.findall(r"--build-arg (\w+)=", commands)
    assert set(arguments) <= set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.MULTILINE))
    for name in ("images", "chart", "wheels"):
        assert any("cosign" in step.get("run", "") for step in WORKFLOW["jobs"][name]["steps"])


def test_nothing_is_published_before_the_tests():
    assert WORKFLOW["jobs"]["images"]["needs"] == "test"
    assert WORKFLOW["jobs"]["wheels"]["needs"] == "test"
    assert WORKFLOW["jobs"]["chart"]["needs"] == "images"
    assert any(step.get("run") == ".ci/run" for step in WORKFLOW["jobs"]["test"]["steps"])
