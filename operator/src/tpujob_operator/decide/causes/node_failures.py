"""Counts how often a job crashed on each node, to choose the nodes that its pods avoid.

Only the first failure of an attempt counts, and only a crash: a preemption or repair is no evidence against a node,
which often comes back under its old name. Checkpoints in between do not reset the count, because a machine that fails
every few hours is the one to avoid.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from tpujob_operator.observe.state import Ended
from tpujob_resource.jobset.scheduling import Avoided
from tpujob_resource.models.status import NodeFailures, Status

MOST_NODES = 16
"""Nodes that are kept in status; those with the fewest failures are dropped first."""
MOST_AVOIDED = 3
"""Most machines, or node pools, that a job avoids: a program that crashes anywhere must not move through the whole
cluster. With the default `restarts.crashes` a job that makes no progress reaches one."""


def with_crashes(status: Status, crashes: Iterable[Ended], now: datetime) -> list[NodeFailures] | None:
    """The nodes of a status after these first failures of attempts; None: none of them has a node."""
    by_name = {entry.node: entry for entry in status.node_failures or ()}
    on_nodes = [(crash, crash.node) for crash in crashes if crash.node]
    for crash, node in on_nodes:
        before = by_name.pop(node, NodeFailures(node=node, failures=0))
        news = {"failures": before.failures + 1, "exit_code": crash.exit_code, "time": now.replace(microsecond=0)}
        by_name[node] = before.model_copy(update=news)
    if not on_nodes:
        return None
    # The newest are last, and win ties.
    newest_first = list(by_name.values())[::-1]
    kept = sorted(newest_first, key=_importance)[:MOST_NODES]
    return [entry for entry in by_name.values() if entry in kept]


def avoided(entries: Sequence[NodeFailures] | None) -> tuple[Avoided, ...]:
    """Labels and values that the machines of a job must not have."""
    found = ((e.avoided_label, e.avoided_value) for e in entries or () if e.avoided_label and e.avoided_value)
    return tuple(dict.fromkeys(found))


def _importance(entry: NodeFailures) -> tuple[bool, int]:
    return (entry.avoided_label is None and not entry.lifted, -entry.failures)
