"""The notebook of the examples runs in a kernel of Jupyter, and the programs of docs/python.md on this machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.harness.processes import COMPILED_ONCE

ROOT = Path(__file__).parents[2]
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)


@pytest.mark.processes
def test_the_notebook_trains_goes_on_and_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in COMPILED_ONCE.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = ["".join(_texts(cell)) for cell in notebook.cells if cell.cell_type == "code"]
    assert "'Succeeded'" in shown[1]
    assert "finished at step 20" in shown[1]
    assert re.search(r"^20 +\d", shown[2], re.MULTILINE)
    assert re.match(r"\[\(20, \d", shown[3])
    assert "resumed from step 20" in shown[4]
    assert shown[4].endswith("20")
    assert "spec.trainer.stesp: unknown field" in shown[5] or "did you mean" in shown[5]


def _texts(cell: nbformat.NotebookNode) -> list[str]:
    return [each.get("text") or each["data"]["text/plain"] for each in cell.outputs]


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
