"""The cache of compiled programs in the checkpoint directory, which saves compiling at a restart; compile statistics.

Anyone who can write there can run code in the trainer: the cache holds programs. The name of the folder has everything
that makes programs incompatible, so that old folders can be deleted. JAX_COMPILATION_CACHE_DIR sets another folder.

With several CPU devices the cache is off: see `is_exact`.
"""

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
    """Whether a program from the cache works as it did when it was compiled.

    With several CPU devices it does not, in jaxlib 0.12: a shared resource puts collectives into one order, and when a
    program is read back, those inside a loop get a separate resource (`WhileThunkFromProto` in openxla/xla,
    xla/backends/cpu/runtime/thunk_proto_serdes.cc). They may then run concurrently with those outside, in another order
    on each device: devices wait for each other forever, or processes take one message for another.
    """
    return backend != "cpu" or devices == 1


def use(directory: str | None, *, enabled: bool) -> str | None:
    """Makes JAX cache compiled programs; returns the path, None: no cache. Call this before anything is compiled."""
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
    """Statistics of compiling in this process, from JAX's events."""

    def __init__(self) -> None:
        self.hits = 0
        """Programs found in the cache."""
        self.misses = 0
        """Programs not found in the cache."""
        self.seconds = 0.0
        """Time spent compiling, or reading compiled programs."""
        self._lock = threading.Lock()
        self._listens = False

    def listen(self) -> None:
        """Registers the listeners; further calls do nothing."""
        if not self._listens:
            self._listens = True
            jax.monitoring.register_event_listener(self.event)
            jax.monitoring.register_event_duration_secs_listener(self.duration)

    def event(self, event: str, **_: Any) -> None:
        """Counts an event of JAX."""
        with self._lock:
            self.hits += event == "/jax/compilation_cache/cache_hits"
            self.misses += event == "/jax/compilation_cache/cache_misses"

    def duration(self, event: str, seconds: float, **_: Any) -> None:
        """Adds the duration of an event of JAX."""
        if event == "/jax/core/compile/backend_compile_duration":
            with self._lock:
                self.seconds += seconds


COUNTS = Counts()
"""The statistics of this process: JAX's listeners are global, and are never removed."""
