"""A `sitecustomize` that reports to the launcher, at once, that the program ends: with which error, and exit code.

The launcher puts a copy, named sitecustomize.py, first on the PYTHONPATH of the program. Without it, an uncaught
exception is seen only when the process is gone, and a JAX process first waits in an exit handler until its peers come,
for up to five minutes.

- Runs in the program's interpreter, from Python 3.9 on: with the standard library alone, and without errors of its own.
- Reports the topmost Python process alone: its subprocesses inherit the mark that it leaves in the environment, and
  its forks have another pid.
- The `sitecustomize` that it hides, if there is one, runs as before.

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
"""Address of the launcher's socket; behind a colon the pid of the process that reports, once there is one."""
JAX_MODULE = "tpujob_jax_initialize"
"""What `jax_initialize` is called in the folder of the copy."""
VERSION = 1
SILENCE = "TPUJOB_SILENCE_SECONDS"
"""Set where a program that prints nothing for so long is ended."""
_MONITORING_TOOL = 4
"""One of the two numbers of `sys.monitoring` that have no purpose: debuggers, coverage and profilers keep theirs."""
_LIMIT_BYTES = 16384
"""Of a traceback, its end: a datagram holds it, and a termination message has room for a quarter."""
_INTERRUPTED = 130


class Reporter:
    """What one process says of its end."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pid = os.getpid()
        self._has_reported = False

    def error(self, error: BaseException) -> None:
        """Reports the error that ends the program; SystemExit with 0 is none."""
        code = _exit_code(error)
        if code and self._is_first():
            import traceback

            lines = traceback.format_exception(type(error), error, error.__traceback__)
            self._send(code, lines[-1].strip(), "".join(lines))
            sys.stdout.flush()  # exit handlers may not return, and the interpreter would write it after them

    def leave(self, code: int, caller: FrameType) -> None:
        """Reports a call of `os._exit`, and where: its peers may raise before the launcher sees that it is gone."""
        if self._is_first():
            where = f"{caller.f_code.co_filename}:{caller.f_lineno} in {caller.f_code.co_name}"
            self._send(code & 0xFF, f"os._exit({code}) at {where}", "")

    def end(self) -> None:
        """Reports that the interpreter starts to shut down, unless an error has been reported."""
        if self._is_first():
            self._send(0, "", "")
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
    """Watches this process, if it is the topmost Python process below a launcher."""
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
    """Has the launcher's SIGURG, which ends no program that does not know it, write the stacks of all threads."""
    import faulthandler
    import signal

    faulthandler.register(signal.SIGURG, all_threads=True)


def _safely(function: Callable[..., None], *arguments: object) -> None:
    """Calls the function; an error of ours must not take the place of the program's own."""
    try:  # noqa: SIM105 - no import for that
        function(*arguments)
    except Exception:  # noqa: BLE001, S110
        pass


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def _watch_unwinding(reporter: Reporter) -> bool:
    """Reports an error when it leaves the program's outermost frame; False before Python 3.12.

    Whatever has replaced `sys.excepthook` changes nothing here, and SystemExit, which has no hook, comes this way too.
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
    """Reports what reaches `sys.excepthook`, and calls of `sys.exit` that nothing catches; not `raise SystemExit`."""
    import _thread

    previous = sys.excepthook
    main_thread = _thread.get_ident()

    def excepthook(kind: object, error: BaseException, trace: object) -> None:
        _safely(reporter.error, error)
        previous(kind, error, trace)  # type: ignore[arg-type]

    class Exit(SystemExit):
        def __del__(self) -> None:
            # Code that catches it has a frame; the interpreter, which has none, drops it before it shuts down.
            if sys._getframe().f_back is None:  # noqa: SLF001
                _safely(reporter.error, self)

    Exit.__name__ = Exit.__qualname__ = "SystemExit"  # as people know it from tracebacks
    Exit.__module__ = "builtins"

    def exit(code: object = None, /) -> None:  # noqa: A001
        # `threading` ends a thread silently for SystemExit itself, not for a subclass.
        raise (Exit if _thread.get_ident() == main_thread else SystemExit)(code)

    sys.excepthook = excepthook
    sys.exit = exit  # type: ignore[assignment]


def _watch_shutdown(reporter: Reporter) -> None:
    """Reports the shutdown of the interpreter before any exit handler runs, whenever that was registered."""
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
    """Runs the `sitecustomize` that this one stands before on the path; its errors are its own."""
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
