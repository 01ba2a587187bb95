"""The reader of `/report`, against a server that cuts its answers."""

import http.server
import threading

from tests.cli.test_supervisor import make
from tools.localcluster.waiting import wait_for
from tpujob.local import reports
from tpujob.local.launcher_notices import LauncherNotices
from tpujob.local.program_output import SILENT_SECONDS, ProgramOutput


class Cutting(http.server.BaseHTTPRequestHandler):
    """Promises more than it sends, the first time; then answers whole."""

    answers = 0

    def do_GET(self) -> None:
        whole = b'{"step": 7}'
        Cutting.answers += 1
        is_cut = Cutting.answers == 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(whole) + (100 if is_cut else 0)))
        self.end_headers()
        self.wfile.write(whole)

    def log_message(self, *args: object) -> None:
        return


def test_an_answer_that_is_cut_does_not_end_the_reader(monkeypatch):
    monkeypatch.setattr(reports, "INTERVAL_SECONDS", 0.05)
    with http.server.HTTPServer(("127.0.0.1", 0), Cutting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        reader = reports.ReportReader(server.server_address[1])
        reader.start()
        wait_for("a whole answer", lambda: reader.latest.get("step") == 7, timeout_seconds=60)
        reader.close()
        server.shutdown()


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
