"""The end that a Python program reports through the start-up hook in its interpreter, before its exit handlers run."""

from __future__ import annotations

import json
import logging
import os
import pkgutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from tpujob_contract.exit_codes import ExitCode
from tpujob_launcher.supervise import jax_initialize, start_hook

logger = logging.getLogger(__name__)

_MOST_BYTES = 1 << 17
_FOLDER = "start-hook"


@dataclass(frozen=True)
class ProgramEnd:
    """The end of a Python program, as its interpreter reports it."""

    pid: int
    code: int
    """The exit code with which the interpreter is about to end."""
    at: float
    """Unix time."""
    error: str = ""
    """The exception in one line; empty without one."""
    traceback: str = ""

    @property
    def is_immediate(self) -> bool:
        """Whether `os._exit` was called: no exit handler runs, and the program has reported the reason elsewhere."""
        return self.error.startswith("os._exit(")

    @property
    def is_failure(self) -> bool:
        """Whether it is a failure: neither 0 nor 75 (saved, and asks for a restart)."""
        return self.code not in (ExitCode.FINISHED, ExitCode.STOPPED)


class ProgramEnds:
    """Receives the reports of a program's start-up hook, which the program finds by `variables`."""

    def __init__(self, folder: Path) -> None:
        """Writes the hook to an empty folder, which must exist as long as the program runs, and opens a socket there.

        Raises:
            OSError: The socket cannot be created: its path is too long, or the file system has no sockets.
        """
        self._folder = folder / _FOLDER
        self._folder.mkdir()
        for module, name in ((start_hook, "sitecustomize"), (jax_initialize, start_hook.JAX_MODULE)):
            file = f"{module.__name__.rpartition('.')[2]}.py"
            content = pkgutil.get_data("tpujob_launcher.supervise", file) or b""
            (self._folder / f"{name}.py").write_bytes(content)
        self._address = str(folder / "socket")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            self._socket.bind(self._address)
        except OSError:
            self._socket.close()
            raise
        self._has_warned = False

    def __enter__(self) -> ProgramEnds:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def variables(self, environ: Mapping[str, str]) -> Dict[str, str]:
        """The variables that load the hook into every Python program with this environment."""
        inherited = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        return {
            "PYTHONPATH": os.pathsep.join([str(self._folder), *inherited]),
            start_hook.SOCKET: self._address,
        }

    def receive(self) -> List[ProgramEnd]:
        """The reports since the last call; invalid ones are dropped, and the first is logged."""
        found: List[ProgramEnd] = []
        while True:
            try:
                content = self._socket.recv(_MOST_BYTES)
            except OSError:
                return found
            end = _parse(content)
            if end is not None:
                found.append(end)
            elif not self._has_warned:
                self._has_warned = True
                logger.warning("dropped: %d bytes on the launcher's socket that are no report", len(content))


def _parse(content: bytes) -> Optional[ProgramEnd]:
    try:
        report: Dict[str, Any] = json.loads(content)
        if report["version"] != start_hook.VERSION:
            return None
        return ProgramEnd(
            pid=int(report["pid"]),
            code=int(report["code"]) & 0xFF,
            at=float(report["at"]),
            error=" ".join(str(report["error"]).split()),
            traceback=str(report["traceback"]),
        )
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError):
        return None
