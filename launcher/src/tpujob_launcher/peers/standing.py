"""What launcher 0 has said, as each launcher knows it. Pure."""

from __future__ import annotations

from typing import Optional

from tpujob_launcher.peers.messages import (
    GO,
    LINE_CHARACTERS,
    OVER,
    RESTART,
    End,
    Message,
    attempt_in,
    end_in,
    printable,
)


class Standing:
    """Of one launcher; changes by the messages of launcher 0 alone."""

    def __init__(self) -> None:
        """The first attempt runs."""
        self.attempt = 0
        """Which attempt in this container this launcher's program is in."""
        self.announced = 0
        """The attempt that is to come, or the running one."""
        self.allowed = 0
        """The attempt that may start, or the running one."""
        self.cause = ""
        """Why the last attempt ended."""
        self.end: Optional[End] = None
        """Which end that was; None: launcher 0 did not say."""
        self.over: Optional[str] = None
        """Why there is no further attempt in this container."""

    @property
    def has_to_end(self) -> bool:
        """Whether the running program has to end, since another process failed."""
        return self.announced > self.attempt

    def take(self, message: Message) -> None:
        """What launcher 0 says; what is none of its messages is dropped."""
        kind, values = message
        attempt = attempt_in(values)
        if kind == OVER:
            self.over = printable(str(values.get("reason", "")))
        elif kind == RESTART and attempt is not None:
            self.announced = max(self.announced, attempt)
        elif kind == GO and attempt is not None:
            self.announced = max(self.announced, attempt)
            self.allowed = max(self.allowed, attempt)
            self.cause = printable(str(values.get("cause", "")), 2 * LINE_CHARACTERS)
            self.end = end_in(values)

    def begin(self, attempt: int) -> None:
        """The program of an attempt is about to start."""
        self.attempt = attempt
