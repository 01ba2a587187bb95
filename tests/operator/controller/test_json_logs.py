"""A log line can be taken apart, and says which job it is about."""

import asyncio
import json
import logging
import sys
from typing import Any

from tpujob_operator.controller.json_logs import JsonFormatter, current_job, without_traceback


def line(message: str, *args: object, error: bool = False) -> dict[str, Any]:
    info = sys.exc_info() if error else None
    record = logging.LogRecord("tpujob_operator.x", logging.WARNING, __file__, 1, message, args, info)
    found: dict[str, Any] = json.loads(JsonFormatter().format(record))
    return found


def test_line_has_its_parts() -> None:
    found = line("Refused: %s\nand more", "quota")
    assert found.pop("time").endswith("+00:00")
    assert found == {"level": "WARNING", "logger": "tpujob_operator.x", "message": "Refused: quota\nand more"}


async def test_line_names_the_job_of_its_task() -> None:
    async def look(name: str) -> str:
        current_job.set(("team", name))
        await asyncio.sleep(0)
        job: str = line("looked")["job"]
        return job

    assert list(await asyncio.gather(look("a"), look("b"))) == ["team/a", "team/b"]
    assert "job" not in line("started")


def test_error_brings_its_traceback() -> None:
    try:
        int("a defect")
    except ValueError:
        assert "ValueError: invalid literal" in line("Handling failed", error=True)["traceback"]


def test_error_of_a_library_is_one_line() -> None:
    try:
        int("a cut watch")
    except ValueError:
        record = logging.LogRecord("kopf._cogs", logging.ERROR, __file__, 1, "Watching %s", ("jobs",), sys.exc_info())
    assert without_traceback(record)
    found = json.loads(JsonFormatter().format(record))
    assert "traceback" not in found
    assert found["message"] == "Watching jobs: ValueError: invalid literal for int() with base 10: 'a cut watch'"
