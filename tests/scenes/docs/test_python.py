"""The programs of docs/python.md run on this machine; `test_installed.py` has the notebook."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.processes import COMPILED_ONCE

ROOT = Path(__file__).parents[3]
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)


@pytest.mark.processes
def test_the_programs_of_the_page_run_here(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("tick tock " * 400)
    job = (ROOT / "examples" / "quickstart.yaml").read_text()
    job = re.sub(r"path: [^,]+", f"path: {tmp_path}/text.txt", job).replace("cpu:2x4", "cpu:1x1").replace("200", "4")
    job = job.replace("everySteps: 50", "everySteps: 2").replace("name: quickstart", "name: page")
    (tmp_path / "job.yaml").write_text(job)
    here = [program for program in PROGRAMS if "tpujob.run(" in program]
    assert len(here) == 2
    for program in here:
        program = program.replace('"spec.trainer.steps": 100', '"spec.trainer.steps": 6')
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={**os.environ, **COMPILED_ONCE},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) in (1e-3, 3e-3)
