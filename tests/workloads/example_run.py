"""An example of another framework under `tpujob run`, in a folder of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
FOR_EVER = 10_000_000


class ExampleRun:
    """A folder with the job, where it may be started several times: its checkpoints stay."""

    def __init__(self, folder: Path, example: Path) -> None:
        self.folder = folder
        self._example = example
        folder.mkdir()

    def job(self) -> dict[str, Any]:
        """The example, to be changed."""
        loaded: dict[str, Any] = YAML(typ="safe", pure=True).load(self._example.read_text())
        return loaded

    def run(
        self, job: Mapping[str, Any], *, before: Sequence[str] = (), environ: Mapping[str, str] = os.environ
    ) -> subprocess.Popen[str]:
        """Starts `tpujob run`, as the argument of another command where `before` is one."""
        YAML().dump(job, self.folder / "job.yaml")
        return subprocess.Popen(
            [*before, sys.executable, "-m", "tpujob", "run", "job.yaml", "-o", "json"],
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, run: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
        """What the command line printed of a run that ended with this code."""
        out, err = run.communicate(timeout=400)
        assert run.returncode == code, err[-3000:]
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found

    def steps(self) -> list[dict[str, Any]]:
        """What process 0 of the newest attempt has printed of its steps."""
        logs = sorted(self.folder.glob(".tpujob/default/*/logs/*/process-0.log"))
        lines = logs[-1].read_text().splitlines(keepends=True) if logs else []
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]
