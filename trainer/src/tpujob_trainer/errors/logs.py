"""The log of a process, in which no address has a user, a password or a query."""

from __future__ import annotations

import logging
import sys

from tpujob_contract.storage_address import redacted


class RedactingFormatter(logging.Formatter):
    """Formats records, and cuts the secrets of the addresses in them: those in tracebacks of libraries, too."""

    def format(self, record: logging.LogRecord) -> str:
        """The lines of a record."""
        return redacted(super().format(record))


def log_to_stderr(level: int, text: str | None = None, *, replace: bool = False) -> None:
    """Writes the log of this process to stderr, unless something else is set up.

    Args:
        level: Of the records that are written.
        text: The format of a line; None: the level, the logger and the message.
        replace: Takes the place of what is set up.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter(text or logging.BASIC_FORMAT))
    logging.basicConfig(level=level, handlers=[handler], force=replace)
