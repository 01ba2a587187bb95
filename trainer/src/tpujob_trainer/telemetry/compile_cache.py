"""Compiled programs kept beside the checkpoint, so that a restart does not compile again; and what compiling costs.

Who can write there can run code in the trainer: the cache holds programs. The folder's name has all that makes programs
incompatible, so that old ones can be deleted whole. A folder given by JAX_COMPILATION_CACHE_DIR is used instead.

Several devices that are CPUs keep nothing: see `is_exact`.
"""

from __future__ import annotations

import importlib.metadata
import logging
import re
import threading
from typing import Any

import jax

logger = logging.getLogger(__name__)

FOLDER = "compile-cache"


def folder_name(*, versions: dict[str, str], kind: str, devices: int, processes: int) -> str:
    """The folder for programs of this software on this hardware."""
    software = "-".join(f"{name}-{version}" for name, version in sorted(versions.items()))
    return re.sub(r"[^A-Za-z0-9.=-]+", "_", f"{software}-{kind}-{devices}x{processes}")


def is_exact(backend: str, *, devices: int) -> bool:
    """Whether a program that was kept does what it did when it was compiled.

    On CPUs it does not for several devices, with jaxlib 0.12: collectives are put into one order by a resource that
    they share, and when a program is read back, those inside of a loop get one of their own (`WhileThunkFromProto` in
    openxla/xla, xla/backends/cpu/runtime/thunk_proto_serdes.cc). They may then run beside those outside of it, on each
    device in another order: devices wait for each other for ever, processes may take one message for another.
    """
    return backend != "cpu" or devices == 1


def use(directory: str | None, *, enabled: bool) -> str | None:
    """Has JAX keep compiled programs; where, or None. Call it before anything is compiled."""
    COUNTS.listen()
    if not is_exact(jax.default_backend(), devices=jax.device_count()):
        jax.config.update("jax_enable_compilation_cache", False)
        return None
    if jax.config.jax_compilation_cache_dir:
        return str(jax.config.jax_compilation_cache_dir)
    if directory is None or not enabled:
        return None
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")}
    kind = jax.devices()[0].device_kind
    name = folder_name(versions=versions, kind=kind, devices=jax.local_device_count(), processes=jax.process_count())
    path = f"{directory}/{FOLDER}/{name}"
    jax.config.update("jax_compilation_cache_dir", path)
    return path


class Counts:
    """What JAX says about compiling in this process."""

    def __init__(self) -> None:
        self.hits = 0
        """Programs found in the cache."""
        self.misses = 0
        """Programs that were not there."""
        self.seconds = 0.0
        """Spent compiling, or reading what was compiled."""
        self._lock = threading.Lock()
        self._listens = False

    def listen(self) -> None:
        """Starts to count; once in a process."""
        if not self._listens:
            self._listens = True
            jax.monitoring.register_event_listener(self.event)
            jax.monitoring.register_event_duration_secs_listener(self.duration)

    def event(self, event: str, **_: Any) -> None:
        """Something happened."""
        with self._lock:
            self.hits += event == "/jax/compilation_cache/cache_hits"
            self.misses += event == "/jax/compilation_cache/cache_misses"

    def duration(self, event: str, seconds: float, **_: Any) -> None:
        """Something took its time."""
        if event == "/jax/core/compile/backend_compile_duration":
            with self._lock:
                self.seconds += seconds


COUNTS = Counts()
"""Of this process: JAX's listeners are for all of it, and cannot be taken back."""
