"""Asks the trainer how it is doing: over HTTP while it runs, from the checkpoint directory once it has ended."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

Report = dict[str, Any]

TIMEOUT_SECONDS = 1.0
INTERVAL_SECONDS = 0.5


class ReportReader:
    """Reads one process's `/report` in a thread, so that a busy trainer never delays Ctrl-C."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/report"
        self._latest: Report = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read, name="report", daemon=True)
        # The machine's proxies know nothing of loopback.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def latest(self) -> Report:
        """The last report that was read; empty before the first."""
        return self._latest

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._closing.wait(INTERVAL_SECONDS):
            try:
                with self._opener.open(self._url, timeout=TIMEOUT_SECONDS) as response:
                    report = json.load(response)
            except (OSError, ValueError):
                continue  # not up yet, or gone: the last one stands
            if isinstance(report, dict):
                self._latest = report


def last_attempt(checkpoint_dir: str, *, attempt: str | None) -> Report:
    """The ending that the trainer kept beside its checkpoints: of this attempt, or the newest; else empty."""
    if "://" in checkpoint_dir:
        return _last_remote_attempt(checkpoint_dir, attempt)
    files = sorted((Path(checkpoint_dir) / "attempts").glob("*.json"))
    return _pick([(f.name, f.read_bytes()) for f in files[-8:]], attempt)


def _last_remote_attempt(checkpoint_dir: str, attempt: str | None) -> Report:
    import fsspec

    system, root = fsspec.core.url_to_fs(checkpoint_dir.rstrip("/") + "/attempts")
    try:
        names = sorted(n for n in system.ls(root, detail=False) if n.endswith(".json"))
        return _pick([(n, system.cat_file(n)) for n in names[-8:]], attempt)
    except OSError:
        return {}


def _pick(files: list[tuple[str, bytes]], attempt: str | None) -> Report:
    for _, content in reversed(files):
        try:
            report = json.loads(content)
        except ValueError:
            continue
        if isinstance(report, dict) and attempt in (None, report.get("attempt")):
            return report
    return {}
