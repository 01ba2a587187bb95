"""Train on Cloud TPUs with Kubernetes: the command line, and its verbs as functions.

    import tpujob

    run = tpujob.run("job.yaml", set={"spec.trainer.steps": 100})
    run.metrics["train/loss"].plot()

The functions raise `CommandError` where the command line prints a line and ends.
"""

# No imports here: Ctrl-C during them would raise KeyboardInterrupt before `__main__` can handle it.
TYPE_CHECKING = False
"""Type checkers take this name as true; an import of `typing` would take milliseconds."""

if TYPE_CHECKING:
    from tpujob.commands.api.jobs import Job, JobFailed, get, list_jobs, logs, resume, retry, stop, submit, wait
    from tpujob.commands.api.runs import Run, RunFailed, run
    from tpujob.output.errors import CommandError

__all__ = [
    "CommandError",
    "Job",
    "JobFailed",
    "Run",
    "RunFailed",
    "get",
    "list_jobs",
    "logs",
    "resume",
    "retry",
    "run",
    "stop",
    "submit",
    "wait",
]

_ROOMS = {
    "CommandError": "tpujob.output.errors",
    "Run": "tpujob.commands.api.runs",
    "RunFailed": "tpujob.commands.api.runs",
    "run": "tpujob.commands.api.runs",
}


def __getattr__(name: str) -> object:
    """Imports a public name when it is used: every command imports this package, and needs little of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_ROOMS.get(name, "tpujob.commands.api.jobs")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
