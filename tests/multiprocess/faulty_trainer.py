"""The trainer's own main, with one fault put into one process of the run: from outside, by replacing what it calls.

Environment:
    FAULT: one of `FAULTS`; none: the trainer as it is.
    FAULT_STAGE: one of `STAGES` or `MORE_STAGES`.
    FAULT_PROCESS: the process that has it.
    FAULT_MARK: a file that is made at that moment, with the process's id.
    FAULT_CALL: the fault comes when the stage is reached for the n-th time; default 1.
"""

import functools
import gc
import hashlib
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.multiprocess.pacing import pace_training, pause

STAGES = ("start", "compile", "step", "save", "evaluate")
"""When all have met and JAX's service is not there yet; when others have compiled; and so on."""
MORE_STAGES = ("restore", "sample", "data", "export", "extract", "stop")
"""Those that not every table plays. `stop` is the last save, after a request to stop."""
STEP = 6
"""The step that the fault comes before, in stage `step`."""
EVALUATION_BATCH = 2
"""The batch that it comes before, in stage `evaluate`."""
UNIT_SECONDS = 0.5
"""At least, of a work unit in stage `extract`: the other worker has some left when the fault comes."""
UPLOAD_SECONDS = 60.0
"""For which an upload is tried; a quarter of an hour without this."""
GO_SECONDS = 120.0
"""For the fault to be made from outside."""
SKEW_SECONDS = 86400.0


def _raise() -> None:
    raise RuntimeError("a fault on purpose")


def _exit() -> None:
    sys.exit(3)


def _exit_to_start_again() -> None:
    sys.exit(75)


def _exit_early() -> None:
    sys.exit(0)


def _evict() -> None:
    """Asks the launcher above to stop, as Kubernetes asks process 1 of a container; the program goes on meanwhile."""
    os.kill(os.getppid(), signal.SIGTERM)


def _evict_and_finish() -> None:
    """The same to a program that catches SIGTERM, and ends with 0."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    _evict()


def _exit_at_once() -> None:
    os._exit(3)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _sleep() -> None:
    threading.Event().wait()


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _compute() -> None:
    """Like a compile of a minute or more: one C call, without the interpreter's lock."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)


def _read() -> None:
    """Like a read of a file system that does not answer."""
    os.mkfifo(os.environ["FAULT_MARK"] + ".pipe")
    Path(os.environ["FAULT_MARK"] + ".pipe").read_bytes()


def _wait() -> None:
    """For a fault that is made from outside: until there is a file beside the mark."""
    _wait_until(Path(os.environ["FAULT_MARK"] + ".go").exists)


def _wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + GO_SECONDS
    while not condition() and time.monotonic() < until:
        pause(0.02)


def _skew() -> None:
    """Python's wall clock jumps; what TensorStore and Orbax read in C++ stays right."""
    right = time.time
    time.time = lambda: right() + SKEW_SECONDS


FAULTS: dict[str, Callable[[], None]] = {
    "exception": _raise,
    "sys.exit": _exit,
    "exit 75": _exit_to_start_again,
    "exit 0": _exit_early,
    "os._exit": _exit_at_once,
    "kill -9": _kill,
    "SIGSTOP": _freeze,
    "sleep": _sleep,
    "SIGTERM": _terminate,
    "eviction": _evict,
    "SIGTERM, exit 0": _evict_and_finish,
    "long compute": _compute,
    "blocked read": _read,
    "wait": _wait,
    "clock": _skew,
}


def main() -> None:
    """Puts the fault in place and trains."""
    gc.disable()  # as `python -m tpujob_trainer` does
    # First: libraries that are imported here would have logs of their own instead.
    from tpujob_trainer.values.programs import start_logging

    start_logging()
    prepare()
    from tpujob_trainer.main import main

    main()


def prepare() -> None:
    """Puts the fault in place, in a process that will run the trainer."""
    pace_training()
    fault = os.environ.get("FAULT")
    if fault:
        _watch_from(Path(os.environ["FAULT_MARK"]))
    if fault and os.environ["FAULT_STAGE"] == "extract":
        _pace_units()
    if fault and os.environ["FAULT_PROCESS"] == os.environ["TPUJOB_HOST"]:
        _arm(os.environ["FAULT_STAGE"], functools.partial(strike, fault))


def _pace_units() -> None:
    """A worker waits for the fault with all units but the first; then each takes a while, and uploads are given up."""
    from tpujob_trainer.corpus.extract.batched import BatchedWork
    from tpujob_trainer.corpus.workers import uploads

    uploads.LIMIT_SECONDS = UPLOAD_SECONDS
    calls = itertools.count()

    def wait() -> None:
        is_victim = os.environ["FAULT_PROCESS"] == os.environ["TPUJOB_HOST"]
        if next(calls) and not is_victim:
            _wait_until(Path(os.environ["FAULT_MARK"]).exists)
        pause(UNIT_SECONDS)

    _before(BatchedWork, "compute", wait)


def _watch_from(mark: Path) -> None:
    """Has the watchdog wait for the fault: what takes long on a busy machine before it is no stall."""
    from tpujob_trainer.distributed.exit.watchdog import Watchdog

    look = Watchdog.look

    def looked(self: Watchdog) -> str | None:
        found = look(self)
        return found if mark.exists() else None

    Watchdog.look = looked  # type: ignore[method-assign]


_calls = 0


def strike(fault: str) -> None:
    """Has the fault come, once in a run, when it is its turn."""
    global _calls
    mark = Path(os.environ["FAULT_MARK"])
    _calls += 1
    if mark.exists() or _calls < int(os.environ.get("FAULT_CALL", "1")):
        return
    # In one step, for whoever waits for it reads it.
    unfinished = mark.with_suffix(".unfinished")
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(mark)
    FAULTS[fault]()


def _arm(stage: str, strike: Callable[[], None]) -> None:
    if stage == "start":
        import jax

        # All have met, and none is in JAX's service yet.
        _before(jax.distributed, "initialize", strike)
    elif stage in ("compile", "step", "evaluate", "sample"):
        _arm_computation(stage, strike)
    elif stage in ("save", "restore"):
        from tpujob_trainer.checkpoint.checkpoints import Checkpoints

        _before(Checkpoints, stage, strike)
    elif stage == "stop":
        _arm_computation("step", _terminate)
        _arm("save", strike)
    elif stage == "data":
        from tpujob_trainer.session import dataset

        _before(dataset, "shared_manifest", strike)
    elif stage == "export":
        from tpujob_trainer.tasks.exporting import Exporter

        _before(Exporter, "write", strike)
    elif stage == "extract":
        from tpujob_trainer.corpus.extract.batched import BatchedWork

        _before(BatchedWork, "compute", strike)
    else:
        raise ValueError(f"no stage {stage}")


def _arm_computation(stage: str, strike: Callable[[], None]) -> None:
    from tpujob_trainer.tasks.compiler import Compiler

    compiled = Compiler.compile

    def replaced(self: Compiler, name: str, *arguments: Any) -> Any:
        if (stage, name) == ("compile", "step"):
            strike()
        function = compiled(self, name, *arguments)
        if (stage, name) == ("step", "step"):
            return _at_call(STEP, function, strike)
        if (stage, name) == ("evaluate", "evaluation"):
            return _at_call(EVALUATION_BATCH, function, strike)
        if (stage, name) == ("sample", "sample"):
            return _at_call(1, function, strike)
        return function

    Compiler.compile = replaced  # type: ignore[method-assign, assignment]


def _before(owner: Any, name: str, strike: Callable[[], None]) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    def replaced(*arguments: Any, **keywords: Any) -> Any:
        strike()
        return function(*arguments, **keywords)

    setattr(owner, name, replaced)


def _at_call(number: int, function: Callable[..., Any], strike: Callable[[], None]) -> Callable[..., Any]:
    calls = 0

    def replaced(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            strike()
        return function(*arguments)

    return replaced


if __name__ == "__main__":
    main()
