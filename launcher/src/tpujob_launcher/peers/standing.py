"""What launcher 0 has said, as each launcher knows it. Pure."""

from __future__ import annotations

from typing import Optional

from tpujob_launcher.peers.messages import (
    GO,
    LINE_CHARACTERS,
    OVER,
    RESTART,
    WELCOME,
    End,
    Message,
    attempt_in,
    end_in,
    printable,
)


class Standing:
    """Of one launcher; changes by the messages of launcher 0 alone."""

    def __init__(self, *, is_newcomer: bool = False) -> None:
        """The first attempt runs; with `is_newcomer`, none does until launcher 0 has said which."""
        first = -1 if is_newcomer else 0
        self.attempt = first
        """Which attempt in this container this launcher's program is in; -1: none has started."""
        self.announced = first
        """The attempt that is to come, or the running one."""
        self.allowed = first
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
        elif kind == WELCOME and attempt is not None and values.get("running") is True:
            if attempt > self.allowed:
                self.end = None  # of an attempt that ended without this launcher
            self.announced, self.allowed = max(self.announced, attempt), max(self.allowed, attempt)
        elif kind in (WELCOME, RESTART) and attempt is not None:
            self.announced = max(self.announced, attempt)
        elif kind == GO and attempt is not None:
            self.announced = max(self.announced, attempt)
            self.allowed = max(self.allowed, attempt)
            self.cause = printable(str(values.get("cause", "")), 2 * LINE_CHARACTERS)
            self.end = end_in(values)

    def begin(self, attempt: int) -> None:
        """The program of an attempt is about to start."""
        self.attempt = attempt
