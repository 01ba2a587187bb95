"""An event loop for kopf in its own thread, which ends even if kopf leaves tasks behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)


def run_to_the_first_end(main: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine in a new event loop, like asyncio.run, but does not wait for tasks that refuse to end.

    Kopf leaves such tasks behind when its credentials are refused (they wait for new ones without end).
    """
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: logger.debug("Left behind by the watching: %s", context))
    try:
        loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=1))
        # Connections that were just closed need an iteration of the loop to end.
        loop.run_until_complete(asyncio.sleep(0.05))
        with contextlib.suppress(TimeoutError):
            loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), timeout=1))
        loop.close()
