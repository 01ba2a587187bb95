"""The workflows, as actionlint reads them."""

import subprocess

import pytest

from tests.charts.test_release import FOLDER, ROOT
from tools.localcluster import binaries
from tools.localcluster.toolchain import ToolsUnavailable


def test_actionlint_finds_nothing():
    try:
        program = binaries.path("actionlint")
    except ToolsUnavailable as reason:
        pytest.skip(f"no actionlint: {reason}")
    files = sorted((FOLDER / "workflows").glob("*.yaml"))
    done = subprocess.run([program, "-shellcheck=", "-pyflakes=", *files], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")
