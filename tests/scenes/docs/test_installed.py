"""The wheels of `make wheels`, installed where no checkout is, by the commands of docs/install.md."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.installed import installed, wheels
from tests.harness.processes import COMPILED_ONCE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "install.md").read_text()
BIN = Path(sys.executable).parent
PACKAGES = (
    "tpujob",
    *(f"tpujob_{each}" for each in ("contract", "launcher", "operator", "resource", "sdk", "trainer")),
)
JOB = """
apiVersion: tpujob.dev/v1beta1
kind: TpuTrainingJob
metadata: {name: small}
spec:
  accelerator: cpu:1x1
  trainer:
    model: {preset: tiny}
    data: {path: text.txt, tokenizer: bytes}
    steps: 10
"""

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels(tmp_path_factory.mktemp("wheels") / "dist")


@pytest.fixture(scope="module")
def with_trainer(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with what runs jobs here, and Jupyter."""
    folder = tmp_path_factory.mktemp("installed")
    environment = installed(folder, dist, "tpujob[run]")
    options: list[str | Path] = [
        "--python",
        folder / "venv",
        "--require-hashes",
        "--requirement",
        ROOT / "requirements" / "notebook.txt",
    ]
    subprocess.run([BIN / "uv", "pip", "install", "--quiet", *options], check=True)
    return environment


def call(environment: dict[str, str], folder: Path, *command: str, code: int = 0) -> str:
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_package_is_a_wheel_with_its_checksum(dist: Path) -> None:
    wheels = sorted(file.name for file in dist.glob("*.whl"))
    assert [name.partition("-")[0] for name in wheels] == sorted(PACKAGES)
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=True)


def test_with_the_trainer_jobs_and_programs_run(with_trainer: dict[str, str], tmp_path: Path) -> None:
    assert "pip install --find-links dist 'tpujob[run]'" in PAGE
    assert re.match(r"tpujob \d+\.\d+\.\d+", call(with_trainer, tmp_path, "tpujob", "--version"))
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "text.txt").write_text("tick tock " * 400)
    assert "10 steps" in call(with_trainer, tmp_path, "tpujob", "check", "job.yaml")
    (tmp_path / "program.py").write_text("print('well')")
    assert "well" in call(with_trainer, tmp_path, "tpujob", "run", "program.py")
    found = call(with_trainer, tmp_path, "python", "-c", "import tpujob; print(tpujob.__file__)")
    assert "site-packages" in found


EXECUTE = """
import json, sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
nbclient.NotebookClient(notebook, timeout=300).execute()
code = [cell for cell in notebook.cells if cell.cell_type == "code"]
print(json.dumps(["".join(o.get("text") or o["data"]["text/plain"] for o in cell.outputs) for cell in code]))
"""


def test_the_notebook_trains_goes_on_and_is_refused(with_trainer: dict[str, str], tmp_path: Path) -> None:
    """In a kernel of Jupyter."""
    (tmp_path / "execute.py").write_text(EXECUTE)
    notebook = str(ROOT / "examples" / "notebook.ipynb")
    said = call({**with_trainer, **COMPILED_ONCE}, tmp_path, "python", "execute.py", notebook)
    shown = json.loads(next(line for line in said.splitlines() if line.startswith("[")))
    assert "'Succeeded'" in shown[1]
    assert "finished at step 20" in shown[1]
    assert re.search(r"^20 +\d", shown[2], re.MULTILINE)
    assert re.match(r"\[\(20, \d", shown[3])
    assert "resumed from step 20" in shown[4]
    assert shown[4].endswith("20")
    assert "spec.trainer.stesp: " in shown[5]


def test_without_the_trainer_what_needs_it_says_so(dist: Path, tmp_path: Path) -> None:
    environment = installed(tmp_path, dist, "tpujob")
    (tmp_path / "job.yaml").write_text(JOB)
    assert "kind: JobSet" in call(environment, tmp_path, "tpujob", "render", "job.yaml")
    (tmp_path / "text.txt").write_text("tick tock " * 400)
    assert "the trainer is not installed" in call(environment, tmp_path, "tpujob", "run", "job.yaml", code=77)


def test_uvx_runs_it_without_installing_it(dist: Path, tmp_path: Path) -> None:
    assert "uvx --find-links dist tpujob --version" in PAGE
    options = ["--find-links", str(dist), "--python", sys.executable]
    environment = {**os.environ, "UV_TOOL_DIR": str(tmp_path / "tools")}
    said = call(environment, tmp_path, str(BIN / "uvx"), *options, "tpujob", "--version")
    assert re.search(r"^tpujob \d+\.\d+\.\d+$", said, re.MULTILINE)
