"""Serves what is known of a program while it runs, and writes the last of it into the termination message."""

from __future__ import annotations

from typing import List, Mapping, Optional

from tpujob_contract.connections.http_server import HttpServer
from tpujob_contract.exit_codes import ExitCode
from tpujob_contract.reports.report import Phase
from tpujob_launcher.reports.progress import Progress
from tpujob_launcher.reports.report_server import serve


class Reporting:
    """Of one program: `start` once it runs, `finish` once it has ended."""

    def __init__(self, progress: Progress, environ: Mapping[str, str], port: int) -> None:
        """Starts nothing: a process that has threads cannot safely become two.

        Args:
            progress: What is served.
            environ: Of this process.
            port: Where /report is expected.
        """
        self._progress = progress
        self._environ = environ
        self._port = port
        self._server: Optional[HttpServer] = None

    def start(self) -> None:
        """Looks for progress, and serves it."""
        self._progress.start()
        self._server = serve(self._progress.report, self._environ, self._port)

    def finish(self, exit_code: int) -> List[str]:
        """Ends both; the lines of the termination message that hold the last report."""
        line = self._progress.close(_PHASES.get(exit_code, "failed"))
        if self._server is not None:
            self._server.close()
        return [line]


_PHASES: Mapping[int, Phase] = {int(ExitCode.FINISHED): "finished", int(ExitCode.STOPPED): "stopping"}
