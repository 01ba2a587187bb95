"""Signed addresses and passwords through all commands: real processes; every file, log, status and report is read."""

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.harness.local_run import write_job
from tests.harness.processes import COMPILED_ONCE
from tests.trainer.data.data_files import write_jsonl_gz
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.processes

CANARY = "canary7f3a"
SIGNATURE = f"X-Goog-Signature={CANARY}"
MODEL = {"preset": "tiny", "layers": 1, "embedDim": 32, "heads": 2, "kvHeads": 1, "headDim": 16, "mlpDim": 64}
SECONDS = 600


class Desk:
    """A folder in which commands are run, a web server that asks for the signature, and all that was said."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder = folder
        self.jobs = folder / "jobs"
        """Holds the addresses, as the person wrote them."""
        self.said: dict[str, str] = {}
        self.signed = f"{server}/text.jsonl.gz?{SIGNATURE}"
        self.refused = f"{server}/text.jsonl.gz?{SIGNATURE}-expired"
        self.password = f"{server}/text.jsonl.gz".replace("://", f"://user:{CANARY}@")
        self.jobs.mkdir()

    def job(self, name: str, address: str, *, workers: int | None = None, **trainer: Any) -> str:
        spec: dict[str, Any] = {
            "accelerator": "cpu:1x1",
            "checkpointDir": str(self.folder / "runs" / name),
            "trainer": {
                "model": MODEL,
                "data": {"path": address, "tokenizer": "bytes", "retrySeconds": 0},
                "sequenceLength": 32,
                "batchSize": 8,
                **trainer,
            },
        }
        if workers is not None:
            spec["workers"] = workers
        write_job(self.jobs / f"{name}.yaml", name, spec)
        return str(self.jobs / f"{name}.yaml")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tpujob", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                **COMPILED_ONCE,
                "NO_PROXY": "*",
            },
        )

    def tpujob(self, *arguments: str, code: int | None = 0) -> str:
        """What a command said, to its end; None takes any exit code but that of success."""
        process = self.start(*arguments)
        out, _ = process.communicate(timeout=SECONDS)
        said = " ".join(each for each in arguments if CANARY not in each)
        self.said[said] = out
        assert process.returncode == code if code is not None else process.returncode, (said, out)
        return out

    def files_with_the_secret(self) -> list[str]:
        return [
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.is_file() and self.jobs not in path.parents and CANARY.encode() in path.read_bytes()
        ]


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Iterator[Desk]:
    served = tmp_path_factory.mktemp("served")
    write_jsonl_gz(served / "text.jsonl.gz", [f"{row:03d} is one document of many." for row in range(64)])

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(served))

        def send_head(self) -> Any:
            if urlsplit(self.path).query != SIGNATURE:
                self.send_error(403)
                return None
            return super().send_head()

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Desk(tmp_path_factory.mktemp("desk"), f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


def look_at_a_live_run(desk: Desk, job: str) -> int:
    """/report, /metrics and the page of a trainer that runs; returns the step at which it was stopped then."""
    running = desk.start("run", job, "--verbose")

    def port() -> str | None:
        assert running.poll() is None, running.communicate()[0]
        texts = [path.read_text() for path in (desk.folder / ".tpujob").rglob("*.log")]
        line = re.compile(r"Serving .*/report.* on .*:(\d+)")
        return next((match[1] for text in texts if (match := line.search(text))), None)

    try:
        found = wait_for("the port of the report", port, timeout_seconds=SECONDS)
        opener = build_opener(ProxyHandler({}))

        def page(path: str) -> str:
            text: str = opener.open(f"http://127.0.0.1:{found}{path}", timeout=30).read().decode()
            return text

        wait_for("a step", lambda: json.loads(page("/report"))["step"], timeout_seconds=SECONDS)
        desk.said |= {path: page(path) for path in ("/report", "/metrics", "/")}
    finally:
        running.terminate()
        desk.said["run --verbose"], _ = running.communicate(timeout=SECONDS)
    return int(re.findall(r"saved at step (\d+)", desk.said["run --verbose"])[-1])


def test_a_signed_run_keeps_and_says_no_signature(desk: Desk) -> None:
    """Trains, exports, extracts, and is looked at by every command that works without a cluster, and while it lives."""
    block: dict[str, Any] = {"sample": {"prompt": "a", "tokens": 4}, "export": {}, "logEverySteps": 1}
    train = desk.job("train", desk.signed, steps=10_000_000, **block)
    extract = desk.job("extract", desk.signed, workers=1, task="extract", extract={"layers": [0]})
    runs = str(desk.folder / "runs")
    desk.tpujob("render", train)
    desk.tpujob("check", train, "--data")
    desk.tpujob("data", "inspect", train)
    desk.tpujob("data", "inspect", desk.signed, "--json")
    stopped = look_at_a_live_run(desk, train)
    desk.tpujob("run", desk.job("train", desk.signed, steps=stopped + 2, **block), "--json")
    desk.tpujob("run", extract)
    desk.tpujob("run", desk.job("generate", desk.signed, workers=1, task="generate", generate={"tokens": 2}))
    desk.tpujob("report", f"{runs}/train")
    for verb in ("ls", "show", "verify"):
        desk.tpujob("checkpoint", verb, f"{runs}/train", "-o", "json")
    desk.tpujob("checkpoint", "export", f"{runs}/train", "exported")
    for verb in ("status", "verify"):
        desk.tpujob("extract", verb, f"{runs}/extract", "-o", "json")
    assert [said for said, out in desk.said.items() if CANARY in out] == []
    assert desk.files_with_the_secret() == []
    assert list(desk.folder.rglob("owner.json")), "the runs have left files to look at"


def test_a_run_that_is_refused_its_data_names_no_signature(desk: Desk) -> None:
    job = desk.job("expired", desk.refused, steps=4)
    for verb in (["check", job, "--data"], ["data", "inspect", job], ["run", job, "--verbose"]):
        assert CANARY not in desk.tpujob(*verb, code=None), verb
    assert desk.files_with_the_secret() == []


@pytest.mark.parametrize(
    "verb", [["render"], ["check"], ["check", "--data"], ["data", "inspect"], ["run"]], ids=" ".join
)
def test_a_password_is_refused_and_not_repeated(desk: Desk, verb: list[str]) -> None:
    out = desk.tpujob(*verb[:2], desk.job("password", desk.password, steps=4), *verb[2:], code=None)
    assert "holds a user or a password" in out
    assert CANARY not in out
    assert desk.files_with_the_secret() == []
