"""Lets `jax.distributed.initialize()` without arguments find the processes of the job, as it does on a TPU VM.

JAX reads the coordinator's address from the environment, and asks the clusters that it knows for the number of
processes and its own; a job is none of them. So what the launcher has put into the environment becomes the default of
the three arguments; what a program passes itself stays.

Runs in the program's interpreter as a part of `start_hook`: from Python 3.9 on, with the standard library alone.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Optional

ADDRESS, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
_MODULE = "jax.distributed"


def install() -> None:
    """Waits for the program to import JAX; nothing where the launcher has given no ids."""
    if COUNT in os.environ and NUMBER in os.environ:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Sees the first import of the module, and leaves."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Optional[Any]:
        """The module's own spec, whose loader fills in the defaults; None for every other module."""
        if name != _MODULE:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            if "initialize" in module.__dict__:
                module.__dict__["initialize"] = with_defaults(module.__dict__["initialize"])

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def with_defaults(initialize: Callable[..., None]) -> Callable[..., None]:
    """The function, with the job's values where all three that say who is there are left out."""
    from functools import wraps

    @wraps(initialize)
    def filled(
        coordinator_address: Optional[str] = None,
        num_processes: Optional[int] = None,
        process_id: Optional[int] = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        is_bare = (num_processes, process_id) == (None, None) and not kwargs.get("cluster_detection_method")
        if is_bare and coordinator_address in (None, os.environ.get(ADDRESS)):
            coordinator_address = os.environ.get(ADDRESS)
            num_processes, process_id = int(os.environ[COUNT]), int(os.environ[NUMBER])
        return initialize(coordinator_address, num_processes, process_id, *args, **kwargs)

    return filled
