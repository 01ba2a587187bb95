"""Readers of what people and pods send: job files, code archives, reports, termination messages."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import time
from pathlib import Path

from rich.console import Console

from tests.fuzz.target import Target
from tests.launcher.code.archives import archive, special
from tpujob.job.job_file import read_job
from tpujob.local import outcome, reports, runs
from tpujob.local.closing import Closing
from tpujob.local.display import make_display
from tpujob.output.errors import CommandError
from tpujob_contract.reports import report as contract_report
from tpujob_contract.reports import termination_message
from tpujob_launcher.code.archive import CodeRefused, unpack
from tpujob_operator.observe.report import final_report, progress_from_report, without_final_report
from tpujob_operator.observe.untrusted import clean_text, parse_json
from tpujob_resource.models.phases import Phase

JOB = {
    "apiVersion": "tpujob.dev/v1beta1",
    "kind": "TpuTrainingJob",
    "metadata": {"name": "tiny"},
    "spec": {
        "accelerator": "cpu:2x2",
        "image": "example.test/trainer:1",
        "trainer": {
            "model": {"layers": 2, "embedDim": 32, "heads": 2},
            "data": {"path": "corpus/*.txt"},
            "steps": 20,
            "checkpoint": {"everySteps": 5},
        },
    },
}
YAML = """# A job
apiVersion: tpujob.dev/v1beta1
kind: TpuTrainingJob
metadata: {name: tiny}
spec:
  accelerator: cpu:2x2
  image: &image example.test/trainer:1
  trainer:
    model: {layers: 2, embedDim: 32, heads: 2}
    data: {path: "corpus/*.txt"}
    steps: 20
    optimizer: {learningRate: 3e-4}
    seed: 0x10
"""
REPORT = {
    "phase": "training", "step": 12, "steps": 20, "loss": 1.5, "goodput": {"step": 3.0, "start": 1.0},
    "goodput_fraction": 0.7, "committed_step": 10, "committed_time": 1764000000.5, "checkpoint_failing_since": None,
    "checkpoint_message": None, "data_wait_fraction": 0.1, "data_slow_message": None, "units": 16, "units_done": 3,
    "unit_failures": {"storage": 2},
}  # fmt: skip
OF_EXTRACTION = {"units_here": 3, "rows_here": 48, "values_not_finite": 1}


def _job_json(folder: Path) -> Path:
    (folder / "job.yaml").write_text(json.dumps(JOB))
    return folder / "job.yaml"


def _job_yaml(folder: Path) -> Path:
    (folder / "job.yaml").write_text(YAML)
    return folder / "job.yaml"


def _read_job(folder: Path) -> None:
    read_job(folder / "job.yaml")


def _archive(folder: Path) -> Path:
    archive(folder / "code.tar.gz", ("train.py", b"print(1)\n" * 50), ("pkg/a.py", b"x = 1\n"), special("pkg", b"5"))
    return folder / "code.tar.gz"


def _plain_archive(folder: Path) -> Path:
    """Changes of packed bytes seldom get past gzip."""
    packed = _archive(folder)
    (folder / "code.tar").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    return folder / "code.tar"


def _pack_and_unpack(folder: Path) -> None:
    (folder / "code.tar.gz").write_bytes(gzip.compress((folder / "code.tar").read_bytes()))
    _unpack(folder)


def _unpack(folder: Path) -> None:
    out = folder / "out"
    out.mkdir()
    unpack(folder / "code.tar.gz", out)
    assert all(path.resolve().is_relative_to(out.resolve()) for path in out.rglob("*"))


def _report(folder: Path) -> Path:
    (folder / "report").write_text(json.dumps(REPORT))
    return folder / "report"


def _read_report(folder: Path) -> None:
    json.dumps(str(progress_from_report(parse_json((folder / "report").read_bytes()))))


def _ending(folder: Path) -> Path:
    (folder / "report").write_text(json.dumps({**REPORT, **OF_EXTRACTION}))
    return folder / "report"


def _show_ending(folder: Path) -> None:
    """As the command line shows a run, on a terminal and in a log, while it goes on and at its end."""
    (folder / "process-0.log").touch()
    final = b"".join((folder / "report").read_bytes().splitlines())
    (folder / "process-0.ending").write_bytes(contract_report.FINAL_PREFIX.encode() + final)
    (folder / "done").mkdir()
    report = reports.last_report([folder / "process-0.ending"], str(folder), {})
    ended = outcome.Outcome(phase=Phase.SUCCEEDED, exit_code=0, culprit=None)
    with io.StringIO() as out:
        for has_units, is_terminal in itertools.product((True, False), repeat=2):
            display = make_display(Console(file=out, force_terminal=is_terminal), has_units=has_units)
            try:
                for more in (0, 1, 2):
                    moved = {name: report[name] + more for name in ("step", "units_done") if report.get(name)}
                    display.show({**report, **moved, "phase": "training"})
                display.show(report)
            finally:
                display.close()
            list(Closing(ended, report, again="x", has_trainer=True, has_units=has_units).lines())
    runs.row("a", runs.LocalRun(folder))
    json.dumps(outcome.summary(ended, report, processes=1))


def _processes(folder: Path) -> Path:
    (folder / runs.FILE).write_text(json.dumps({"pid": 1, "started": "5", "report_ports": [9432], "secret": "a"}))
    return folder / runs.FILE


def _read_processes(folder: Path) -> None:
    runs.row("a", runs._read(folder / runs.FILE))


def _message(folder: Path) -> Path:
    words = termination_message.failure_line(time.time(), "RuntimeError: a fault") + "\nhost a: process 1 of 2: died"
    (folder / "message").write_text(f"{words}\n{contract_report.final_line(REPORT)}")
    return folder / "message"


def _read_message(folder: Path) -> None:
    text = (folder / "message").read_bytes().decode(errors="replace")
    final_report(text)
    clean_text(without_final_report(text), limit=1000)
    termination_message.failed_at(text)
    contract_report.split_final_report(text)


TARGETS = (
    Target(
        "job file, by values",
        _job_json,
        _read_job,
        (CommandError,),
        is_json=True,
        says=(":",),
        has_lines=True,
        examples=50,
    ),
    Target("job file, by bytes", _job_yaml, _read_job, (CommandError,), says=(":",), has_lines=True, examples=50),
    Target("code archive", _archive, _unpack, (CodeRefused,), says=("spec.code.archive",)),
    Target("code archive, not packed", _plain_archive, _pack_and_unpack, (CodeRefused,), says=("spec.code.archive",)),
    Target("report", _report, _read_report, (ValueError,), is_json=True, says=("",), examples=60),
    Target("report, as tpujob run shows it", _ending, _show_ending, (), is_json=True, examples=60),
    Target("processes.json", _processes, _read_processes, (), is_json=True),
    Target("termination message", _message, _read_message, (), examples=60),
)
