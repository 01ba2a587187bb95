"""Splits a list of items over the processes of a job."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tpujob_trainer.distributed.kv_store import Coordination
from tpujob_trainer.errors import ConfigurationError

LIMIT_SECONDS = 60.0


def own_part[T](items: Sequence[T], coordination: Coordination, name: str) -> list[T]:
    """Every n-th item of n processes, from the process's index on; all processes must call this, with a new name.

    Raises:
        ConfigurationError: process 0 has different items, or there are fewer items than processes.
    """
    count, digest = len(items), hashlib.blake2b(repr(items).encode(), digest_size=8).hexdigest()
    problem = None
    if count < coordination.num_processes:
        problem = f"{count} items for {coordination.num_processes} processes; split smaller parts, as files or indexes"
    of_lead = coordination.lead_decides(name, lambda: [count, digest], limit_seconds=LIMIT_SECONDS)
    if of_lead != [count, digest]:
        problem = f"process 0 has {of_lead[0]} items, this process {count} other ones; sort them: sorted(glob(…))"
    if problem is not None:
        raise ConfigurationError(f"job.split: {problem}")
    return list(items[coordination.process_id :: coordination.num_processes])
