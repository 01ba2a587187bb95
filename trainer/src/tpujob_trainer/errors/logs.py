"""The log of a process, without the user, password and query of any address."""

from __future__ import annotations

import logging
import sys

from tpujob_contract.storage_address import redacted


class RedactingFormatter(logging.Formatter):
    """Formats records, and removes secrets from the addresses in them, including those in tracebacks of libraries."""

    def format(self, record: logging.LogRecord) -> str:
        """The lines of a record."""
        return redacted(super().format(record))


def log_to_stderr(level: int, text: str | None = None, *, replace: bool = False) -> None:
    """Writes the log of this process to stderr, unless logging is already set up.

    Args:
        level: The lowest level that is written.
        text: The format of a line; None: the level, the logger and the message.
        replace: Whether to replace the handlers that are already set up.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter(text or logging.BASIC_FORMAT))
    logging.basicConfig(level=level, handlers=[handler], force=replace)
