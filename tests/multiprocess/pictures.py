"""Draws the page and the report of a run for the documentation: `make run-pictures`.

A small model learns the source of Python's standard library in two processes, which are stopped once and go on.
"""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from ruamel.yaml import YAML

from tests.html_page import in_chromium
from tools.localcluster.plain_http import opened

IMAGES = Path(__file__).parents[2] / "docs" / "images"
STEPS, STOPPED_AT, SHOWN_AT = 400, 150, 330
JOB = {
    "apiVersion": "tpujob.dev/v1beta1",
    "kind": "TpuTrainingJob",
    "metadata": {"name": "standard-library"},
    "spec": {
        "accelerator": "cpu:2x2",
        "trainer": {
            "model": {"preset": "tiny", "layers": 2},
            "data": {"path": "rows.parquet", "tokenizer": "bytes"},
            "batchSize": 16,
            "sequenceLength": 128,
            "steps": STEPS,
            "logEverySteps": 10,
            "checkpoint": {"everySteps": 50, "keep": 3},
            "evaluation": {"everySteps": 50, "batches": 4},
            "sample": {"prompt": "def "},
        },
    },
}


def main() -> None:
    """Runs the job, and writes a picture of its page while it runs and of its report afterwards."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        texts = [file.read_text() for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))]
        pq.write_table(pa.table({"text": texts}), folder / "rows.parquet")
        YAML().dump(JOB, folder / "job.yaml")
        _run(folder, until=STOPPED_AT)
        _run(folder, until=SHOWN_AT, picture=IMAGES / "page.png")
        report = folder / ".tpujob" / "default" / "standard-library" / "report.html"
        _draw(report.as_uri(), folder, IMAGES / "report.png", "900,1000")


def _run(folder: Path, *, until: int, picture: Path | None = None) -> None:
    """Runs the job; from a step on it is stopped, or its page is drawn and it goes on to its end."""
    command = [sys.executable, "-m", "tpujob", "run", "job.yaml"]
    environ = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=pipe, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        address, done = "", False
        for line in run.stdout:
            sys.stdout.write(line)
            if found := re.match(r"progress +(http\S+)", line):
                address = found[1]
            step = re.match(r"step ([\d,]+)/", line)
            if done or step is None or int(step[1].replace(",", "")) < until:
                continue
            done = True
            if picture is None:
                run.send_signal(signal.SIGINT)
                continue
            # The page renews itself; a browser would wait for its end.
            with opened(address) as answer:
                (folder / "page.html").write_bytes(answer.read())
            _draw((folder / "page.html").as_uri(), folder, picture, "900,700")
    assert run.returncode == (75 if picture is None else 0)


def _draw(address: str, folder: Path, picture: Path, size: str) -> None:
    in_chromium(address, folder, f"--screenshot={picture}", "--hide-scrollbars", f"--window-size={size}")


if __name__ == "__main__":
    main()
