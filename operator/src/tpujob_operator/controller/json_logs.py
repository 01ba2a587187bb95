"""Log lines as JSON objects, each with the job that it is about: for pods, whose logs are collected and searched."""

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime

from tpujob_operator.observe.terminations import Key

current_job: ContextVar[Key | None] = ContextVar("current_job", default=None)
"""Namespace and name of the job that the current task reconciles."""


def without_traceback(record: logging.LogRecord) -> bool:
    """A filter for loggers of libraries: puts an error into the line, without its traceback, which is not about us."""
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        record.msg, record.args = f"{record.getMessage()}: {type(error).__name__}: {error}", ()
        record.exc_info = record.exc_text = None
    return True


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and if they apply job and traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without a newline."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (job := current_job.get()) is not None:
            line["job"] = "/".join(job)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)
