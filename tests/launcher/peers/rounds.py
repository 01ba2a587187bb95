"""Rounds of launcher 0, as its tests begin them."""

from typing import Any

from tpujob_launcher.peers import messages
from tpujob_launcher.peers.attempt import Phase
from tpujob_launcher.peers.messages import End
from tpujob_launcher.peers.round import Round
from tpujob_launcher.peers.timing import (
    STEADY_SECONDS,
)

STARTUP_SECONDS = 100.0
VERSIONS = {"jax": "1.0", "flax": "2.0"}
KILLED = "its connection broke: it was killed or crashed; the exit code and the log of its pod have the cause"
GONE = "process 1 lost its pod: its container is gone"


def fresh(size: int = 3, *, limit: int = 2, **options: Any) -> Round:
    """With launcher 0 alone."""
    hosts = [f"host-{i}" for i in range(size)]
    return Round(hosts, hosts_per_slice=size, limit=limit, startup_seconds=STARTUP_SECONDS, **options)


def connected(size: int = 3, **options: Any) -> Round:
    """With all launchers connected, at 0."""
    made = fresh(size, **options)
    for process in range(1, size):
        made.connected(process, 0.0, host=f"host-{process}")
    return made


def replacing(size: int = 3, **options: Any) -> Round:
    """Where Kubernetes replaces lost pods."""
    return connected(size, replaces_pods=True, **options)


def end(process: int, code: int = 1, line: str = "a bug", at: float = 100.0, kind: str = "failed") -> End:
    return End(process, code, at, line, kind)


def is_ending(made: Round, attempt: int = 1) -> bool:
    return (made.phase, made.attempt, made.over) == (Phase.ENDING, attempt, None)


def restart(made: Round, now: float, *, without: tuple[int, ...] = ()) -> str:
    """Lets all hosts be ready, and the next attempt start; returns the cause."""
    for process in range(3):
        if process not in without:
            made.ready(process, made.attempt, now)
    # Launchers send heartbeats meanwhile.
    made.limit_seconds = 10 * STEADY_SECONDS
    made.tick(now + min(made.seconds(now), STARTUP_SECONDS), 0.0)
    assert made.phase is Phase.RUNNING, made.over
    return str(messages.end_in(made.account, "last"))


def first(made: Round) -> Any:
    return made.state["first"]


def about(**changed: Any) -> dict[str, Any]:
    return {"configuration": "c0ffee", "versions": VERSIONS, **changed}


def progress(step: int = 5, seconds: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"step": step, "seconds": seconds, **more}
