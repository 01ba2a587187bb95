"""The readers of reports, against what is cut, deep, slow or without end."""

import contextlib
import http.server
import threading
from typing import ClassVar

import pytest

from tests.cli.test_supervisor import make
from tools.localcluster.waiting import wait_for
from tpujob.local import reports
from tpujob.local.program_output import SILENT_SECONDS, LauncherNotices, ProgramOutput
from tpujob_contract.reports.report import ATTEMPTS


class Odd(http.server.BaseHTTPRequestHandler):
    """Answers oddly the first time; then whole."""

    first: ClassVar[str]

    def do_GET(self) -> None:
        odd, Odd.first = Odd.first, ""
        whole = b'{"step": 7}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(whole) + 100 if odd == "cut" else 10**9 if odd else len(whole)))
        self.end_headers()
        piece = {"deep": b"[" * 9000, "without end": b" " * (1 << 20), "slow": b" "}.get(odd, whole)
        with contextlib.suppress(ConnectionError):  # the reader has left
            self.wfile.write(piece)
            while odd in ("without end", "slow"):
                threading.Event().wait(0.1 if odd == "slow" else 0)
                self.wfile.write(piece)

    def log_message(self, *args: object) -> None:
        return


@pytest.mark.parametrize("first", ["cut", "deep", "without end", "slow"])
def test_an_odd_answer_does_not_end_the_reader(monkeypatch, first):
    monkeypatch.setattr(reports, "INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(Odd, "first", first, raising=False)
    with http.server.HTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        reader = reports.ReportReader(server.server_address[1])
        reader.start()
        wait_for("a whole answer", lambda: reader.latest.get("step") == 7, timeout_seconds=60)
        reader.close()
        server.shutdown()


def test_last_report_is_that_of_a_file_that_can_be_read(tmp_path):
    assert reports.last_attempt(f"/{'x' * 300}", attempt=None) == {}
    (tmp_path / ATTEMPTS).mkdir()
    for name, content in {"1": '{"step": 7}', "2": "[" * 9000, "3": '{"st'}.items():
        (tmp_path / ATTEMPTS / f"{name}.json").write_text(content)
    assert reports.last_attempt(str(tmp_path), attempt=None) == {"step": 7}
    (tmp_path / "ending").write_text("words\nreport: " + "[" * 3000)
    assert reports.final_report(tmp_path / "ending") == {}


def test_the_wiring_is_left_out_and_silence_is_told_once(tmp_path):
    log = tmp_path / "process-0.log"
    log.write_text("tpujob launch: process 0 of 2 of a/b\n[Gloo] Rank 0 is connected\ntpujob launch: the TPU\nmine\n")
    output = ProgramOutput(log, verbose=False)
    assert list(output.lines(0.0)) == ["tpujob launch: the TPU", "mine"]
    assert list(output.lines(SILENT_SECONDS - 1)) == []
    (hint,) = output.lines(SILENT_SECONDS)
    assert "printed nothing for 120 s" in hint
    assert list(output.lines(SILENT_SECONDS + 1)) == []


def test_launchers_of_all_processes_are_heard_and_who_fell_silent_first_is_named(tmp_path):
    processes = make(tmp_path, "", "")
    for process in processes:
        process.log.write_text("tpujob launch: process 0 of 2\nstep 1\n")
    notices = LauncherNotices(processes)
    assert list(notices.lines(0.0)) == []
    assert notices.first_silent(0.0) == "", "both spoke at once"
    with processes[0].log.open("a") as log:
        log.write("step 2\n")
    assert list(notices.lines(10.0)) == []
    hint = "process 1 (p1) has printed nothing for longest, 130 s"
    assert notices.first_silent(130.0) == hint
    output = ProgramOutput(processes[0].log, verbose=False, first_silent=notices.first_silent)
    list(output.lines(10.0))
    (line,) = output.lines(130.0)
    assert line.startswith("process 0 has printed nothing for 120 s")
    assert hint in line
    with processes[1].log.open("a") as log:
        log.write("tpujob launch: the program failed, and is in its exit handlers: E: x\n")
    assert list(notices.lines(131.0)) == ["process 1 (p1): the program failed, and is in its exit handlers: E: x"]
    again = "attempt 1 in the same containers: process 1 ended with exit code 1: E: x"
    for process in processes:
        with process.log.open("a") as log:
            log.write(f"tpujob launch: {again}\n")
    assert list(notices.lines(132.0)) == [again], "once, though every launcher says so"
    assert list(output.lines(132.0)) == []
    warned = (
        "The tracker wandb: cannot be opened: UsageError: not logged in; the training goes on, and this is said once"
    )
    for process in processes:
        with process.log.open("a") as log:
            log.write(f"2026-01-31 10:00:00,123 W tpujob_trainer.telemetry.trackers: {warned}\n")
            log.write("2026-01-31 10:00:00,123 W tpujob_trainer.checkpoint.lease: Cannot release\n")
    assert list(notices.lines(132.5)) == [f"warning: {warned}"]
