"""What the trainer answers about an extraction, in lines."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tpujob.output.words import counted, digits, duration, of_not_finite, size

type Facts = Mapping[str, Any]


def priced(found: Facts, chip_hour_price: float | None) -> dict[str, Any]:
    """The status with the price of a chip-hour, if one is given."""
    return {**found} if chip_hour_price is None else {**found, "chip_hour_price": chip_hour_price}


def describe(found: Facts, *, now: float | None = None) -> Iterator[str]:
    """The status in lines for people; `now` is Unix time."""
    now = time.time() if now is None else now
    total = "" if found["rows_total"] is None else f" of {found['rows_total']:,}"
    yield (
        f"units    {found['done']:,} of {found['units']:,} done, {found['claimed']:,} claimed, {found['left']:,} left"
    )
    skipped = "".join(f", {count:,} left out ({cause})" for cause, count in sorted(found["rows_skipped"].items()))
    yield f"rows     {found['rows']:,}{total}{skipped}; {found['tokens']:,} tokens, {size(found['bytes'])}"
    yield f"rate     {_rate(found['rows_per_second'])}, {_time_left(found)}"
    yield from _chip_hours(found)
    if found["taken_over"]:
        yield f"retaken  {counted(found['taken_over'], 'unit')}, whose first worker had gone silent"
    if found["not_finite"]:
        yield f"warning  {of_not_finite(found['not_finite'])}"
    for cause, count in sorted(found["failures"].items()):
        yield f"failed   {counted(count, 'time')}: {cause}"
    if found["last_failure"]:
        yield f"         last: {found['last_failure']['worker']}: {found['last_failure']['message']}"
    is_over = found["done"] == found["units"]
    for each in found["workers"]:
        yield f"worker   {each['worker']:>4}: {', '.join(_of_worker(each, now, is_over=is_over))}"


def _of_worker(each: Mapping[str, Any], now: float, *, is_over: bool) -> Iterator[str]:
    yield counted(each["units"], "unit")
    yield counted(each["rows"], "row")
    yield counted(each["files"], "file")
    yield _rate(each["rows_per_second"])
    if each["claimed"]:
        where = f" by {each['host']}" if each.get("host") else ""
        yield f"{each['claimed']} claimed{where}"
    if not is_over and (heard := last_heard(each, now)):
        yield f"last heard of {heard} ago"


def last_heard(worker: Mapping[str, Any], now: float) -> str:
    """The time since storage last received something from a worker, as in 4 s; empty if unknown."""
    # The two times are from two clocks: that of the storage may be ahead.
    return "" if worker["last_time"] is None else duration(max(0.0, now - worker["last_time"]))


def _chip_hours(found: Facts) -> Iterator[str]:
    """The chip-hours and rates that the workers measured, and the cost if a price is given."""
    if found.get("chip_hours") is None:
        return
    unit = "chip-hours" if found["chip_kind"] != "cpu" else "device-hours"
    left = "" if found["done"] == found["units"] else f", {digits(found['chip_hours_left'])} left"
    yield f"chips    {digits(found['chip_hours'])} {unit} ({found['chip_kind']}) so far{left}, without start-up"
    yield (
        f"         measured for each: {found['rows_per_chip_second']:,.2f} rows/s, "
        f"{found['tokens_per_chip_second']:,.0f} tokens/s{_of_peak(found)}"
    )
    if (price := found.get("chip_hour_price")) is not None:
        spent, rest = found["chip_hours"] * price, found["chip_hours_left"] * price
        yield f"cost     {digits(spent)} so far{f', {digits(rest)} left' if left else ''}, at {price:g} an hour"


def _of_peak(found: Facts) -> str:
    """The fraction of a chip's peak arithmetic, in words; empty if unknown."""
    fraction = found.get("peak_fraction")
    return "" if fraction is None else f", {fraction:.1%} of its peak in bfloat16"


def verified(found: Facts) -> str:
    """The result of `verify` in one line."""
    left = f"; {counted(found['leftover_files'], 'leftover file')} ({size(found['leftover_bytes'])}) of dead workers"
    parts = [counted(found[each], each[:-1]) for each in ("units", "rows", "files")] + [size(found["bytes"])]
    problems = len(found["problems"])
    verdict = "every checksum is right" if not problems else counted(problems, "problem")
    verdict += f"; warning: {of_not_finite(found['not_finite'])}" if found["not_finite"] else ""
    return f"{', '.join(parts)}: {verdict}{left if found['leftover_files'] else ''}"


def _rate(rows_per_second: float | None) -> str:
    return "rate unknown yet" if rows_per_second is None else f"{rows_per_second:,.1f} rows/s"


def _time_left(found: Facts) -> str:
    seconds = found["seconds_left"]
    if found["done"] == found["units"]:
        return "complete"
    return "time left unknown yet" if seconds is None else f"{duration(seconds)} left"


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
        texts = (each["worker"], *numbers, rate, each["claimed"], heard, each.get("host") or "-")
        table.add_row(*(Text(str(text)) for text in texts))
    more = len(found["workers"]) - WORKERS_SHOWN
    return Group(table, Text(f"… {more} more")) if more > 0 else table
