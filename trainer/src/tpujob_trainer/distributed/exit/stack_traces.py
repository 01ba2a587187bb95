"""What the threads of this process are doing."""

from __future__ import annotations

import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

_WAITING = (
    ("jax/_src/array.py", None),
    ("jax/_src/distributed.py", None),
    ("multihost/multihost.py", None),
    ("tpujob_trainer/distributed/kv_store.py", None),
    ("tpujob_trainer/train/step_logger.py", "read"),
    ("tpujob_trainer/train/evaluation.py", "read"),
    ("tpujob_trainer/checkpoint/fingerprint.py", "wait"),
)
"""Ends of paths, and functions there (None: any), that wait for other processes: in a computation or JAX's service."""
_LOOKED_AT = 4
"""Number of innermost frames of the main thread that are searched for them."""


def all_threads() -> str:
    """The stack of every thread, the main one first, the innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)  # noqa: SLF001 - its documented use
    parts = []
    for ident, frame in frames:
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"Thread {names.get(ident, ident)}:\n{stack}")
    return "\n".join(parts)


def main_thread() -> tuple[str, bool]:
    """Where the main thread is, as "file:line in function", and whether it waits there for other processes."""
    ident = threading.main_thread().ident
    frame = sys._current_frames().get(ident) if ident else None  # noqa: SLF001 - as above
    if frame is None:
        return "", False
    inner = _innermost(frame)
    waits = any(path.endswith(end) and wanted in (None, name) for path, _, name in inner for end, wanted in _WAITING)
    # The innermost line is often in the standard library; one in our code, or the user's, is more useful.
    path, line, function = next((place for place in inner if "/lib/python" not in place[0]), inner[0])
    return f"{Path(path).name}:{line} in {function}", waits


def _innermost(frame: FrameType | None) -> list[tuple[str, int, str]]:
    found: list[tuple[str, int, str]] = []
    while frame is not None and len(found) < _LOOKED_AT:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found
