"""A MaxText run has the progress that any other run has: read from what MaxText writes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import HttpServer
from tests.harness.launched import JOB
from tools.localcluster.plain_http import opened
from tools.localcluster.processes import free_ports
from tools.localcluster.waiting import wait_for
from tpujob_contract.environment import CHECKPOINT_DIR, FRAMEWORK, HOST, REPORT_PORT, SLICE
from tpujob_contract.reports.report import FIELDS, split_final_report
from tpujob_launcher.reports import frameworks
from tpujob_launcher.reports.orbax_steps import newest
from tpujob_launcher.reports.progress import LARGEST_FILE_BYTES, JsonLines, Progress
from tpujob_launcher.reports.serving import GAUGES, exposition

TRAINED = {
    "step": 4.0,
    "learning/loss": 2.5,
    "learning/raw_grad_norm": 0.5,
    "learning/total_weights": 8192.0,
    "perf/step_time_seconds": 2.0,
    "run_name": "llama",
}


@pytest.mark.parametrize(
    ("record", "facts"),
    [
        (TRAINED, {"step": 5, "loss": 2.5, "gradient_norm": 0.5, "tokens_per_second": 4096.0}),
        (TRAINED | {"learning/loss": float("nan")}, {"step": 5, "loss": None}),
        ({"step": 0.0, "learning/loss": 1.0}, {"step": 1, "loss": 1.0, "tokens_per_second": None}),
        ({"step": 9.0, "eval/avg_loss": 2.0}, {"evaluation_step": 10, "evaluation_loss": 2.0}),
        ({"step": 9.0, "something": 2.0}, {}),
        ({"learning/loss": 2.0}, {}),
        ({"step": "4", "learning/loss": 2.0}, {}),
    ],
    ids=["a step", "not finite", "no speed yet", "an evaluation", "something else", "no step", "a step as text"],
)
def test_metrics_become_fields_of_a_report(record: dict[str, Any], facts: dict[str, Any]) -> None:
    found = frameworks.facts(record)
    assert {name: found[name] for name in facts} == facts
    assert found.keys() <= set(FIELDS)
    assert bool(found) == bool(facts)


@pytest.mark.parametrize(
    ("environ", "command", "folder"),
    [
        ({"M_BASE_OUTPUT_DIRECTORY": "gs://b/x/", "M_RUN_NAME": "run"}, (), "gs://b/x/run/checkpoints"),
        ({"M_RUN_NAME": "run"}, ("base_output_directory=/mnt/x",), "/mnt/x/run/checkpoints"),
        ({"M_RUN_NAME": "run"}, (), None),
        ({}, ("run_name=", "base_output_directory=/x"), None),
    ],
    ids=["from the environment", "from the command", "no directory", "no name"],
)
def test_checkpoints_are_looked_for_where_maxtext_puts_them(
    environ: dict[str, str], command: tuple[str, ...], folder: str | None
) -> None:
    assert frameworks.checkpoint_folder(environ, command) == folder


@pytest.mark.parametrize(
    ("command", "steps"), [(("steps=20",), 20), (("steps=-1",), None), (("steps=²",), None), ((), None)]
)
def test_the_length_of_the_run_is_read_from_the_command(command: tuple[str, ...], steps: int | None) -> None:
    assert frameworks.steps_of({}, command) == steps


def test_the_newest_committed_step_is_found(tmp_path: Path) -> None:
    assert newest(str(tmp_path / "absent"), {}) is None
    assert newest(str(tmp_path), {}) is None
    for name in ("0", "9", "10", "²", "15.orbax-checkpoint-tmp-3"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / "10", (100.0, 100.0))
    assert newest(str(tmp_path), {}) == (10, 100.0)


def test_storage_whose_answers_are_cut_costs_a_run_nothing(tmp_path: Path) -> None:
    with HttpServer(lambda exchange: exchange.reply(200, b"{" + b" " * 99, sent_bytes=1)) as server:
        progress = Progress(
            tmp_path / "metrics",
            frameworks.facts,
            checkpoints="gs://bucket/run/checkpoints",
            about={},
            environ={"STORAGE_EMULATOR_HOST": server.host},
            port=0,
        )
        progress.start()
        left = progress.finish(0)
    _, report = split_final_report(left)
    assert report is not None
    assert json.loads(report)["phase"] == "finished"


def test_lines_are_read_once_and_half_a_line_waits(tmp_path: Path) -> None:
    file = tmp_path / "metrics"
    lines = JsonLines(file)
    assert list(lines.read()) == []
    file.write_text('{"step": 1}\nno json\n[1]\n' + "[" * 9000 + '\n{"st')
    assert list(lines.read()) == [{"step": 1}]
    with file.open("a") as appended:
        appended.write('ep": 2}\n')
    assert list(lines.read()) == [{"step": 2}]
    file.write_text('{"step": 0}\n')
    assert list(lines.read()) == [{"step": 0}], "MaxText empties the file at step 0"


def test_a_large_file_is_emptied_once_it_was_read(tmp_path: Path) -> None:
    file = tmp_path / "metrics"
    lines = JsonLines(file)
    file.write_text(f'{{"step": 1, "padding": "{"x" * LARGEST_FILE_BYTES}"}}\n')
    assert [record["step"] for record in lines.read()] == [1]
    assert file.stat().st_size == 0
    with file.open("a") as appended:
        appended.write('{"step": 2}\n')
    assert list(lines.read()) == [{"step": 2}]


def test_the_gauges_are_those_of_the_trainer() -> None:
    from tpujob_trainer.telemetry.metrics import GAUGES as OF_THE_TRAINER

    assert {field: name for field, (name, _) in OF_THE_TRAINER.items() if field in GAUGES} == GAUGES
    assert exposition({"phase": "training", "step": 3, "loss": None}).decode().splitlines() == [
        "# TYPE tpujob_step gauge",
        "tpujob_step 3.0",
        "# TYPE tpujob_phase gauge",
        'tpujob_phase{phase="training"} 1.0',
    ]


WRITES_AS_MAXTEXT_DOES = """
import json, os, pathlib, signal, sys
folder = pathlib.Path(os.environ["M_BASE_OUTPUT_DIRECTORY"]) / os.environ["M_RUN_NAME"]
(folder / "checkpoints" / "10").mkdir(parents=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
for step in range(10, 13):
    with open(os.environ["M_METRICS_FILE"], "a") as file:
        file.write(json.dumps({"step": float(step), "learning/loss": 20.0 - step, "learning/total_weights": 64.0,
                               "perf/step_time_seconds": 0.5}) + "\\n")
print("written", flush=True)
signal.pause()
"""


def test_the_launcher_serves_what_was_written_and_leaves_it_behind(launch, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    place = {SLICE: "0", HOST: "0", FRAMEWORK: "maxtext", CHECKPOINT_DIR: str(tmp_path / "out"), REPORT_PORT: str(port)}
    run = launch("python3", "-c", WRITES_AS_MAXTEXT_DOES, "steps=20", environ=JOB | place)
    run.wait_until_said("written")

    def report() -> dict[str, Any]:
        with opened(f"http://127.0.0.1:{port}/report") as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    wait_for("all that is known", lambda: report().get("committed_step") and report()["step"] == 13)
    found = report()
    expected = {
        "phase": "training",
        "processes": 8,
        "step": 13,
        "steps": 20,
        "loss": 8.0,
        "loss_first": 10.0,
        "tokens_per_second": 128.0,
        "attempt_steps": 3,
        "restored_from": 10,
        "committed_step": 11,
        "checkpoint": str(tmp_path / "out"),
    }
    assert {name: found[name] for name in expected} == expected
    assert found.keys() <= set(FIELDS)

    run.send(15)
    assert run.wait() == 75
    words, last = split_final_report("\n".join(run.message))
    assert last is not None
    assert json.loads(last)["step"] == 13
    assert json.loads(last)["phase"] == "stopping"
    assert "told to stop by SIGTERM" in words


def test_other_processes_and_files_of_ones_own_are_left_alone(launch, tmp_path: Path) -> None:
    print_it = 'import os; print("metrics", os.environ.get("M_METRICS_FILE"))'
    other = launch("python3", "-c", print_it, environ=JOB | {FRAMEWORK: "maxtext"})
    own = launch(
        "python3",
        "-c",
        print_it,
        environ=JOB | {SLICE: "0", HOST: "0", FRAMEWORK: "maxtext", "M_METRICS_FILE": "/mine"},
    )
    assert (other.wait(), own.wait()) == (0, 0)
    assert other.stdout == "metrics None\n"
    assert own.stdout == "metrics /mine\n"
