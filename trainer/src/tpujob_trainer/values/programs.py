"""What every program of the trainer does: a log without secrets in any address, one answer on stdout, and its end."""

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tpujob_contract import ExitCode
from tpujob_contract.storage_address import redacted
from tpujob_trainer.values.errors import TrainerError


def answer(work: Callable[[], Mapping[str, Any]]) -> int:
    """Writes the result of `work`, or the error that it raises; returns the exit code."""
    try:
        found = work()
    except TrainerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(found) + "\n")
    return ExitCode.FINISHED


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


def end(code: int) -> NoReturn:
    """Flushes stdout and stderr, and ends the process with this code.

    It skips the interpreter's shutdown, in which a library's thread that still runs aborts a process whose answer is
    complete (apache/arrow#34314).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


FORMAT = "%(asctime)s %(levelname).1s %(name)s: %(message)s"


def start_logging(*, force: bool = False) -> None:
    """Sends log records of level INFO and above to standard error.

    Args:
        force: Replace the handlers that libraries have installed at the root logger.
    """
    log_to_stderr(logging.INFO, FORMAT, replace=force)
    # Orbax logs forty lines for each save; our own lines have what matters.
    logging.getLogger("absl").setLevel(logging.WARNING)
    # gcsfs logs a traceback for each failed request; its caller logs one line and tries again.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
