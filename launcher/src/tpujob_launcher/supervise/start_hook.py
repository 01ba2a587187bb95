"""A `sitecustomize` that immediately reports the end of the program to the launcher, with its error and exit code.

The launcher puts a copy, named sitecustomize.py, first on the PYTHONPATH of the program. Without it, the launcher sees
an uncaught exception only when the process is gone, and a JAX process first waits for its peers in an exit handler, for
up to five minutes.

- Runs in the program's interpreter, Python 3.9 or newer: with only the standard library, and without raising errors.
- Only the topmost Python process reports: its subprocesses inherit its mark in the environment, and its forks have
  another pid.
- The `sitecustomize` that it hides, if any, runs as before.

It also lets a bare `jax.distributed.initialize()` find the processes of the job: see `jax_initialize`.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Callable, NoReturn

SOCKET = "TPUJOB_LAUNCHER_SOCKET"
"""Address of the launcher's socket; after a colon the pid of the process that reports, once there is one."""
JAX_MODULE = "tpujob_jax_initialize"
"""Module name of `jax_initialize` in the folder of the copy."""
VERSION = 1
SILENCE = "TPUJOB_SILENCE_SECONDS"
"""Set if the launcher ends a program that prints nothing for this long."""
_MONITORING_TOOL = 4
"""A tool id of `sys.monitoring` without a predefined use, so that debuggers, coverage and profilers keep theirs."""
_LIMIT_BYTES = 16384
"""Characters of a traceback that are kept, its last: they fit in a datagram; a termination message holds a quarter."""
_INTERRUPTED = 130


class Reporter:
    """Reports the end of one process, once."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pid = os.getpid()
        self._has_reported = False

    def error(self, error: BaseException) -> None:
        """Reports the error that ends the program, except SystemExit with 0."""
        code = _exit_code(error)
        if code and self._is_first():
            _with_library(self._failed, code, error, _folders_before_library())
            sys.stdout.flush()  # exit handlers may not return, and the interpreter would flush only after them

    def _failed(self, code: int, error: BaseException, folders: list[str]) -> None:
        import traceback

        lines = traceback.format_exception(type(error), error, error.__traceback__)
        self._send(code, lines[-1].strip() + _hidden_module("".join(lines), folders), "".join(lines))

    def leave(self, code: int, caller: FrameType) -> None:
        """Reports a call of `os._exit` and its place: peers may raise before the launcher notices the end."""
        if self._is_first():
            where = f"{caller.f_code.co_filename}:{caller.f_lineno} in {caller.f_code.co_name}"
            _with_library(self._send, code & 0xFF, f"os._exit({code}) at {where}", "")

    def end(self) -> None:
        """Reports that the interpreter starts to shut down, unless an error has been reported."""
        if self._is_first():
            _with_library(self._send, 0, "", "")
            sys.stdout.flush()

    def _is_first(self) -> bool:
        if self._has_reported or os.getpid() != self._pid:
            return False
        self._has_reported = True
        return True

    def _send(self, code: int, error: str, trace: str) -> None:
        import json
        import socket
        import time

        words = {"error": error[:1000], "traceback": trace[-_LIMIT_BYTES:]}
        report = {"version": VERSION, "pid": self._pid, "code": code, "at": time.time(), **words}
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(json.dumps(report).encode(), self._address)


def install() -> None:
    """Installs the hooks in this process if it is the topmost Python process below a launcher."""
    address, _, owner = os.environ.get(SOCKET, "").partition(os.pathsep)
    if not address or owner not in ("", str(os.getpid())):
        return
    os.environ[SOCKET] = address + os.pathsep + str(os.getpid())
    if SILENCE in os.environ:
        _safely(_show_stacks)
    reporter = Reporter(address)
    if not _watch_unwinding(reporter):
        _watch_hooks(reporter)
    _watch_shutdown(reporter)
    _watch_exit_at_once(reporter)


def _show_stacks() -> None:
    """Makes the launcher's SIGURG, which is ignored by default, write the stacks of all threads."""
    import faulthandler
    import signal

    faulthandler.register(signal.SIGURG, all_threads=True)


def _safely(function: Callable[..., None], *arguments: object) -> None:
    """Calls the function and suppresses its errors, which must not replace the program's own."""
    try:  # noqa: SIM105 - no import for that
        function(*arguments)
    except Exception:  # noqa: BLE001, S110
        pass


def _hidden_module(trace: str, folders: list[str]) -> str:
    """For an error about a module of Python's library: the file that hides it, in words; empty if there is none."""
    error = trace.strip().splitlines()[-1]
    for folder in folders:
        for name in getattr(sys, "stdlib_module_names", ()):
            file = os.path.join(folder, f"{name}.py")  # noqa: PTH118
            if (f"'{name}'" in error or f'"{file}"' in trace) and os.path.exists(file):  # noqa: PTH110
                return f"; {file} hides Python's own module {name}: rename it"
    return ""


def _folders_before_library() -> list[str]:
    library = os.path.dirname(os.__file__)  # noqa: PTH120
    first = sys.path.index(library) if library in sys.path else 0
    return [entry or os.getcwd() for entry in sys.path[:first]]  # noqa: PTH109


def _with_library(function: Callable[..., None], *arguments: object) -> None:
    """Calls the function with Python's own modules, also where files beside the program hide some."""
    folders, path, hidden = _folders_before_library(), sys.path[:], {}
    for name in getattr(sys, "stdlib_module_names", ()):
        file = getattr(sys.modules.get(name), "__file__", None)
        if name != "__main__" and file and os.path.dirname(file) in folders:  # noqa: PTH120
            hidden[name] = sys.modules.pop(name)
    sys.path[:] = path[len(folders) :]
    try:
        function(*arguments)
    finally:
        sys.path[:] = path
        sys.modules.update(hidden)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def _watch_unwinding(reporter: Reporter) -> bool:
    """Reports an error when it leaves the program's outermost frame; returns False if `sys.monitoring` is unavailable.

    This works even if `sys.excepthook` was replaced, and also for SystemExit, for which no hook is called.
    """
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        return False
    try:
        monitoring.use_tool_id(_MONITORING_TOOL, "tpujob")
    except ValueError:
        return False

    def unwound(code: object, offset: int, error: BaseException) -> None:
        if code.co_name in ("<module>", "_run_module_as_main"):  # type: ignore[attr-defined]
            frame = sys._getframe(1)  # noqa: SLF001 - documented, and the only way
            if frame.f_back is None and frame.f_globals.get("__name__") in ("__main__", "runpy"):
                _safely(reporter.error, error)

    monitoring.register_callback(_MONITORING_TOOL, monitoring.events.PY_UNWIND, unwound)
    monitoring.set_events(_MONITORING_TOOL, monitoring.events.PY_UNWIND)
    return True


def _watch_hooks(reporter: Reporter) -> None:
    """Reports errors that reach `sys.excepthook`, and uncaught calls of `sys.exit`, but not `raise SystemExit`."""
    import _thread

    previous = sys.excepthook
    main_thread = _thread.get_ident()

    def excepthook(kind: object, error: BaseException, trace: object) -> None:
        _safely(reporter.error, error)
        previous(kind, error, trace)  # type: ignore[arg-type]

    class Exit(SystemExit):
        def __del__(self) -> None:
            # Code that catches it has a frame; the interpreter, which has none, deletes it before it shuts down.
            if sys._getframe().f_back is None:  # noqa: SLF001
                _safely(reporter.error, self)

    Exit.__name__ = Exit.__qualname__ = "SystemExit"  # the usual name in tracebacks
    Exit.__module__ = "builtins"

    def exit(code: object = None, /) -> None:  # noqa: A001
        # `threading` ends a thread silently for SystemExit itself, not for a subclass.
        raise (Exit if _thread.get_ident() == main_thread else SystemExit)(code)

    sys.excepthook = excepthook
    sys.exit = exit  # type: ignore[assignment]


def _watch_shutdown(reporter: Reporter) -> None:
    """Reports the shutdown of the interpreter before any exit handler runs, no matter when it was registered."""
    import threading

    shutdown = threading._shutdown  # type: ignore[attr-defined]  # noqa: SLF001 - the interpreter calls it by this name

    def reported() -> None:
        _safely(reporter.end)
        shutdown()

    threading._shutdown = reported  # type: ignore[attr-defined]  # noqa: SLF001


def _watch_exit_at_once(reporter: Reporter) -> None:
    leave = os._exit

    def _exit(status: int) -> NoReturn:
        _safely(reporter.leave, status, sys._getframe(1))  # noqa: SLF001
        leave(status)

    os._exit = _exit


def _find_processes() -> None:
    """Lets a bare `jax.distributed.initialize()` find the job's processes."""
    import tpujob_jax_initialize  # type: ignore[import-not-found]

    tpujob_jax_initialize.install()


def _run_hidden() -> None:
    """Runs the `sitecustomize` that this one hides on the path, without suppressing its errors."""
    here = os.path.dirname(__file__)  # noqa: PTH120 - pathlib is slow to import
    sys.path[:] = [entry for entry in sys.path if entry != here]
    own = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)


if __name__ == "sitecustomize":
    _safely(install)
    _safely(_find_processes)
    _run_hidden()
