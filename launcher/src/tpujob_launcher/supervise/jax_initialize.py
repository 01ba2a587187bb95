"""Lets `jax.distributed.initialize()` without arguments find the processes of the job, as it does on a TPU VM.

JAX reads the coordinator's address from the environment, but gets the number of processes and the process id from the
cluster environments that it knows; a job is none of them. So the values that the launcher has put into the environment
become the defaults of the three arguments; arguments that a program passes are not changed.

Runs in the program's interpreter as part of `start_hook`: Python 3.9 or newer, with only the standard library.
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
    """Installs a hook for the import of `jax.distributed`; does nothing if the launcher has set no ids."""
    if COUNT in os.environ and NUMBER in os.environ:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Handles the first import of the module, then removes itself."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Optional[Any]:
        """The module's own spec, with a loader that adds the defaults; None: another module, or it does not exist."""
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
    """The function with the job's values as defaults.

    They apply if number, id and `cluster_detection_method` are omitted, and the address is, or is the job's own.
    """
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
        if (num_processes or 1) > 1 and os.environ.get("JAX_PLATFORMS") == "cpu":
            _require_own_name()
        return initialize(coordinator_address, num_processes, process_id, *args, **kwargs)

    return filled


def _require_own_name() -> None:
    """Raises an error if the name of this machine leads nowhere: JAX on CPUs would say that its peers are lost."""
    import socket

    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        raise OSError(
            f"the name of this machine, {name}, does not resolve ({error.strerror}), and JAX on CPUs connects by it: "
            f"add `127.0.0.1 {name}` to /etc/hosts"
        ) from None
