"""The live table of `tpujob extract status --watch`: a bar, the figures, and a line for each worker."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tpujob.questions.extraction import Facts, describe, last_heard

WORKERS_SHOWN = 32


def watched(statuses: Iterable[dict[str, Any]], console: Console | None = None) -> None:
    """Shows each status in place of the one before, and leaves the last; without a terminal, prints them all."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        for found in statuses:
            console.print(screen(found))
        return
    with Live(console=console, auto_refresh=False) as live:
        for found in statuses:
            live.update(screen(found), refresh=True)


def screen(found: Facts) -> RenderableType:
    """The status as rich shows it."""
    done, units = found["done"], found["units"]
    bar = Table.grid(padding=(0, 1))
    bar.add_row(ProgressBar(total=units, completed=done, width=50), f"{done / max(1, units):.0%}")
    lines = [Text(line) for line in describe(found) if not line.startswith("worker ")]
    return Group(bar, *lines, workers(found))


def workers(found: Facts) -> RenderableType:
    """A line for each worker."""
    now = time.time()
    table = Table(box=None, pad_edge=False)
    for column in ("WORKER", "UNITS", "ROWS", "FILES", "ROWS/S", "CLAIMED", "HEARD OF", "HOST"):
        table.add_column(column, justify="right")
    for each in found["workers"][:WORKERS_SHOWN]:
        rate = "-" if each["rows_per_second"] is None else f"{each['rows_per_second']:,.1f}"
        numbers = (f"{each[name]:,}" for name in ("units", "rows", "files"))
        heard = f"{last_heard(each, now)} ago"
        table.add_row(each["worker"], *numbers, rate, str(each["claimed"]), heard, each.get("host") or "-")
    more = len(found["workers"]) - WORKERS_SHOWN
    return Group(table, Text(f"… {more} more")) if more > 0 else table
