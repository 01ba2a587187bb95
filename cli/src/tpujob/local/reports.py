"""Reads the trainer's reports: over HTTP while it runs, from its files after its end."""

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tpujob_contract import storage_address
from tpujob_contract.reports import report as wire
from tpujob_contract.reports.report import ATTEMPTS, PATH, newest_first, split_final_report
from tpujob_contract.reports.termination_message import LIMIT_BYTES
from tpujob_contract.typed import object_in, typed

Report = dict[str, Any]
"""Fields of a report that have a value of their type."""

TIMEOUT_SECONDS = 1.0
INTERVAL_SECONDS = 0.5
MOST_ATTEMPTS = 8
"""How many files are searched for an attempt, the newest first."""
MOST_BYTES = 1 << 18
"""The most that is read from a log at once."""


class ReportReader:
    """Reads one process's `/report` in a thread, so that a busy trainer never delays Ctrl-C."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._latest: Report = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read, name="report", daemon=True)

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
            # Not up yet, gone, or truncated: the last report is kept.
            self._latest = fetch_report(self._port) or self._latest


def fetch_report(port: int) -> Report:
    """The report of a process of this machine; empty if it does not answer with one."""
    # Not urllib: its openers would ask a proxy, or read all of the machine's certificates for each report.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        with contextlib.closing(connection):
            connection.request("GET", PATH)
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                return {}
            content, until = b"", time.monotonic() + TIMEOUT_SECONDS
            # Whoever has the port may send without end, or a byte now and then.
            while piece := response.read1(MOST_BYTES):
                content += piece
                if len(content) > MOST_BYTES or time.monotonic() > until:
                    return {}
            return {} if response.length else typed(object_in(content), wire.Report)  # length: of what has not come
    except (OSError, OverflowError, http.client.HTTPException):  # or no port has that number
        return {}


def last_attempt(checkpoint_dir: str, *, attempt: str | None) -> Report:
    """The report of an attempt (None: the newest) that the trainer keeps beside its checkpoints; empty if it has none.

    Buckets are not read: one that does not answer would delay the end of the run.
    """
    if not storage_address.is_path(checkpoint_dir):
        return {}
    folder = Path(checkpoint_dir) / ATTEMPTS
    try:
        names = newest_first(path.name for path in folder.iterdir())
        found = [typed(object_in((folder / name).read_bytes()), wire.Report) for name in names[:MOST_ATTEMPTS]]
    except OSError:
        return {}
    return next((report for report in found if report and attempt in (None, report.get("attempt"))), {})


class LogFollower:
    """Reads the lines that were written to a log since the last call; a line counts once it is complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def lines(self) -> list[str]:
        """New lines; none while there is no log."""
        return self._read(is_over=False)

    def rest(self) -> Iterator[str]:
        """All further lines of a log to which no process writes any more, also a last one without a newline."""
        while lines := self._read(is_over=True):
            yield from lines

    def _read(self, *, is_over: bool) -> list[str]:
        try:
            with self._path.open("rb") as log:
                log.seek(self._at)
                content = log.read(MOST_BYTES)
        except OSError:
            return []
        is_cut, end = len(content) == MOST_BYTES, content.rfind(b"\n") + 1
        if (is_over and not is_cut) or (is_cut and not end):
            end = len(content)
        self._at += end
        return content[:end].decode(errors="replace").splitlines()


def last_report(termination_logs: Sequence[Path], checkpoint_dir: str, latest: Report) -> Report:
    """The last report of a run that is over, completed from its termination messages and its checkpoint directory."""
    finals = [final_report(each) for each in termination_logs]
    report = {**latest, **finals[0], **last_attempt(checkpoint_dir, attempt=latest.get("attempt"))}
    # Each worker has the units done when it last looked; one that was stopped while it compiled has no units.
    of_units = [each for each in (report, *finals) if each.get("units")]
    if of_units:
        known = max(each.get("units_done") or 0 for each in of_units)
        report["values_not_finite"] = sum(each.get("values_not_finite") or 0 for each in finals)
        report["units"] = of_units[0]["units"]
        report["units_done"] = max(known, min(_results(checkpoint_dir), report["units"]))
    return report


def _results(directory: str) -> int:
    """The units that are done by an output directory, in `done/`; 0 for one in a bucket, as in `last_attempt`."""
    return len(list(Path(directory, "done").glob("*.json"))) if storage_address.is_path(directory) else 0


def final_report(termination_log: Path) -> Report:
    """The last report of a process, from its termination message; empty if there is none."""
    _, found = split_final_report("\n".join(tail(termination_log, 20)))
    return typed(object_in(found or ""), wire.Report)


def message_of(termination_log: Path) -> list[str]:
    """The termination message of a process, in lines, without its report."""
    words, _ = split_final_report("\n".join(tail(termination_log, LIMIT_BYTES)))
    return words.splitlines()


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a text file; none if it is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    except OSError:
        return []
