"""Set-up that one worker does for all of them: `setup/<name>.json`, made by the holder of its lease."""

from __future__ import annotations

import time
from collections.abc import Callable

from tpujob_trainer.corpus.workers.claims import LAPSE_SECONDS, RENEW_SECONDS, Claims
from tpujob_trainer.storage import Bucket

FOLDER = "setup/"
POLL_SECONDS = 0.5


def once(
    objects: Bucket,
    worker: str,
    name: str,
    make: Callable[[], bytes],
    *,
    renew_seconds: float = RENEW_SECONDS,
    lapse_seconds: float = LAPSE_SECONDS,
    wait: Callable[[float], object] = time.sleep,
) -> bytes:
    """What `make` returned, in this worker or another one; if that worker dies, another one calls it.

    Args:
        objects: of the output directory.
        worker: the name of this worker.
        name: of what is made.
        make: makes it; called by one worker, and again only if that one dies.
        renew_seconds: as in `Claims`.
        lapse_seconds: as in `Claims`.
        wait: waits for the given seconds.
    """
    made = f"{FOLDER}{name}.json"
    if (found := objects.look(made)) is not None:
        return found.data
    claims = Claims(
        objects, worker, folder=f"{FOLDER}{name}-", renew_seconds=renew_seconds, lapse_seconds=lapse_seconds
    )
    try:
        while (found := objects.look(made)) is None:
            if (held := claims.take(0)) is None:
                wait(POLL_SECONDS)
                continue
            if (found := objects.look(made)) is None:
                objects.create(made, make())
            claims.release(held)
        return found.data
    finally:
        claims.close()
