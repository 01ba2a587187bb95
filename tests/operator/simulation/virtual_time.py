"""An event loop whose clock jumps to the next thing that is due."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _NothingToHear(selectors.DefaultSelector):
    """There are no sockets, and to ask the kernel for them takes half of the time."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Nothing is ever ready."""
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Never waits: when nothing is ready, it is later at once."""

    def __init__(self) -> None:
        super().__init__(_NothingToHear())
        self._now = 0.0

    def time(self) -> float:
        """Seconds since the loop was made, in virtual time."""
        return self._now

    def _run_once(self) -> None:
        # What BaseEventLoop keeps for itself, and typeshed does not know.
        base: Any = self
        if not base._ready and base._scheduled:
            self._now = max(self._now, base._scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine to its end, and cancels what it has left."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main)
