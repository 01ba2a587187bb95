"""A folder in which a person runs one small job with `tpujob run`, and what such a run prints and leaves."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.harness.processes import COMPILED_ONCE
from tests.operator.manifests import manifest
from tools.localcluster.waiting import wait_for
from tpujob.commands.from_folder import folder_to_parquet

TRAINER = {
    "model": {"preset": "tiny", "layers": 1, "embedDim": 32, "heads": 2, "kvHeads": 1, "headDim": 16, "mlpDim": 64},
    "sequenceLength": 32,
    "batchSize": 8,
    "steps": 6,
    "logEverySteps": 1,
    "checkpoint": {"everySteps": 3},
    "sample": {"prompt": "def ", "tokens": 8},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    folder_to_parquet(Path(os.__file__).parent / "json", folder / "text", include=("*.py",))
    return folder / "text" / "*.parquet"


class Desk:
    """A folder in which a person runs one job."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder = folder
        self.spec: dict[str, Any] = {
            "accelerator": "cpu:2x1",
            "trainer": {**TRAINER, "data": {"path": str(data), "tokenizer": "bytes"}},
        }

    def start(self, *options: str, under_nohup: object = False, **changes: object) -> subprocess.Popen[str]:
        spec = {**copy.deepcopy(self.spec), **{k: v for k, v in changes.items() if k not in TRAINER and k != "data"}}
        if spec["trainer"] is not None:
            spec["trainer"] |= {k: v for k, v in changes.items() if k in TRAINER or k == "data"}
        YAML().dump(manifest("desk", **spec), self.folder / "job.yaml")
        return subprocess.Popen(
            [*(["nohup"] if under_nohup else []), sys.executable, "-m", "tpujob", "run", "job.yaml", *options],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**COMPILED_ONCE, **os.environ},
        )

    def run(self, *options: str, **changes: object) -> subprocess.CompletedProcess[str]:
        process = self.start(*options, **changes)
        out, err = process.communicate(timeout=3000)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def checkpoints(self) -> Path:
        return self.folder / ".tpujob" / "default" / "desk" / "checkpoints"


@pytest.fixture
def desk(tmp_path_factory, data) -> Desk:
    return Desk(tmp_path_factory.mktemp("desk"), data)


def summary(done: subprocess.CompletedProcess[str]) -> dict:
    assert done.stdout.strip(), done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def wait_for_a_commit(desk: Desk) -> None:
    wait_for("a committed step", lambda: list(desk.checkpoints.glob("latest.json")), timeout_seconds=600)


def processes_below(folder: Path) -> list[str]:
    """Command lines of live processes that work on this folder."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in environ.read_bytes():
                found.append((environ.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [line for line in found if "tpujob_trainer" in line]
