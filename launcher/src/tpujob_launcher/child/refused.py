"""A command that is not started."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """The command is not started: the exit code of the container, and why."""

    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
