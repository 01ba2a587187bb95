"""The progress of a program that writes metrics but serves no report: served in the same form as the trainer's.

A separate thread reads the metrics often and the checkpoints less often; an error there is retried, and never affects
the program.
"""

import http.client
import logging
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from tpujob_contract.connections.http_server import HttpServer
from tpujob_contract.exit_codes import ExitCode
from tpujob_contract.reports import report as wire
from tpujob_contract.typed import object_in
from tpujob_launcher.reports import orbax_steps
from tpujob_launcher.reports.serving import serve_report

logger = logging.getLogger(__name__)

METRICS_SECONDS, CHECKPOINTS_SECONDS = 1.0, 15.0
LARGEST_FILE_BYTES = 4 << 20
"""The metrics file is emptied when it reaches this size, because it is in the pod's /tmp."""
_LAST_PHASES: Mapping[int, wire.Phase] = {int(ExitCode.FINISHED): "finished", int(ExitCode.STOPPED): "stopping"}


class Progress:
    """The progress of a run: `start` once its program runs, `finish` once it has ended."""

    def __init__(
        self,
        metrics_file: Path,
        facts: Callable[[Mapping[str, Any]], Dict[str, Any]],
        *,
        checkpoints: Optional[str],
        about: Mapping[str, Any],
        environ: Mapping[str, str],
        port: int,
    ) -> None:
        """Reads nothing, and starts no thread: a process with threads cannot fork safely.

        Args:
            metrics_file: The file to which the program appends a JSON object for each step; it may not exist yet.
            facts: Returns the fields of a report for such an object.
            checkpoints: The folder of Orbax's checkpoints; None: unknown.
            about: Fields of the report that do not change.
            environ: The environment of this process.
            port: The port of /report.
        """
        self._lines = JsonLines(metrics_file)
        self._facts = facts
        self._checkpoints = checkpoints
        self._environ = environ
        self._port = port
        self._server: Optional[HttpServer] = None
        self._lock = threading.Lock()
        self._report: Dict[str, Any] = {"phase": "starting", "step": None, **about}
        self._first_step: Optional[int] = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def start(self) -> None:
        """Starts reading the files periodically, and serves the report."""
        self._thread.start()
        self._server = serve_report(self.report, self._environ, self._port)

    def report(self) -> Dict[str, Any]:
        """The current report, with the fields of `tpujob_contract.reports.report`; unknown ones are absent or None."""
        with self._lock:
            return dict(self._report)

    def finish(self, exit_code: int) -> str:
        """Reads the files a last time, stops, and returns the report's line for the termination message."""
        self._stop.set()
        self._thread.join(timeout=orbax_steps.TIMEOUT_SECONDS)
        self._look_at_metrics()
        self._look_at_checkpoints()
        self._update(phase=_LAST_PHASES.get(exit_code, "failed"))
        if self._server is not None:
            self._server.close()
        return wire.final_line(self.report())

    def _look_at_metrics(self) -> None:
        """Reads the metrics that were written since the last call."""
        for record in self._lines.read():
            found = self._facts(record)
            if "step" in found:
                self._begin(found)
            self._update(**found)

    def _look_at_checkpoints(self) -> None:
        """Finds the newest checkpoint."""
        if self._checkpoints is None:
            return
        try:
            found = orbax_steps.newest(self._checkpoints, self._environ)
        except (OSError, http.client.HTTPException, *_OF_ANOTHER_FORM) as error:
            logger.debug("%s cannot be listed: %s", self._checkpoints, error)
            return
        if found is not None:
            self._update(committed_step=found[0] + 1, committed_time=found[1])

    def _begin(self, found: Mapping[str, Any]) -> None:
        """Records the first step of this attempt."""
        if self._first_step is not None:
            return
        self._first_step = found["step"]
        before = found["step"] - 1
        self._update(phase="training", loss_first=found.get("loss"), restored_from=before or None)

    def _update(self, **facts: Any) -> None:
        with self._lock:
            self._report.update(facts)
            if self._first_step is not None and self._report["step"] is not None:
                self._report["attempt_steps"] = self._report["step"] - self._first_step + 1

    def _watch(self) -> None:
        next_look = 0.0
        while not self._stop.wait(METRICS_SECONDS):
            self._look_at_metrics()
            if time.monotonic() >= next_look:
                self._look_at_checkpoints()
                next_look = time.monotonic() + CHECKPOINTS_SECONDS


_OF_ANOTHER_FORM = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading an answer raises that is not as storage answers."""


class JsonLines:
    """The JSON objects appended to a file, one a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def read(self) -> Iterator[Dict[str, Any]]:
        """The objects since the last call; an incomplete line is read later, and anything but an object is skipped."""
        for line in self._new_lines():
            if record := object_in(line):
                yield record

    def _new_lines(self) -> List[bytes]:
        try:
            with self._path.open("r+b") as file:
                # The writer may have emptied the file.
                if file.seek(0, 2) < self._position:
                    self._position = 0
                file.seek(self._position)
                whole, newline, _ = file.read().rpartition(b"\n")
                self._position += len(whole) + len(newline)
                if self._position >= LARGEST_FILE_BYTES and file.seek(0, 2) == self._position:
                    file.truncate(0)  # it is written in append mode
                    self._position = 0
        except OSError:
            return []
        return whole.splitlines()
