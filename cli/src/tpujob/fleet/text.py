"""The report of `tpujob fleet` for people: one screen of 80 columns. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from tpujob.fleet.groups import Group, reasons
from tpujob.fleet.report import Report
from tpujob.fleet.usage import Went
from tpujob_resource.models.times import format_time

WIDTH = 80
MOST_GROUPS = 15
"""With the rest of the page, these fit a screen of 45 lines."""
NUMBERS = ("JOBS", "USED", "IDLE", "WAITING", "CHIP-HOURS", "GOODPUT")


def lines(report: Report) -> Iterator[str]:
    """The whole page."""
    yield f"{format_time(report.since)} to {format_time(report.until)}, from {report.source}"
    for sentence in report.missing:
        yield from textwrap.wrap(sentence, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    if not report.groups:
        yield "No job held or waited for TPU chips."
        return
    yield ""
    yield from _groups(report)
    yield ""
    yield from _went(report)
    if report.worst:
        yield ""
        yield from _worst(report)


def _groups(report: Report) -> Iterator[str]:
    shown = report.groups[:MOST_GROUPS]
    rows = [_row(group, report) for group in (*shown, report.total)]
    heads = (*NUMBERS, *((f"COST {report.currency}".rstrip(),) if report.total.cost is not None else ()))
    table = [(report.by.upper(), *heads), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(1, len(table[0]))]
    longest = min(WIDTH - sum(width + 2 for width in widths), max(len(name) for name, *_ in table))
    for name, *numbers in table:
        cells = (cell.rjust(width) for cell, width in zip(numbers, widths, strict=True))
        yield "  ".join((_short(name, longest).ljust(longest), *cells)).rstrip()
    if len(report.groups) > len(shown):
        yield f"{len(report.groups) - len(shown):,} more: -o json has all"


def _row(group: Group, report: Report) -> tuple[str, ...]:
    use = group.use
    cells = (
        group.name or f"(no {report.by})",
        f"{len(group.jobs):,}",
        *(f"{chips:,.0f}" for chips in (use.used, use.idle, use.waiting)),
        f"{use.chip_hours:,.0f}",
        "" if use.goodput is None else f"{use.goodput * 100:.0f} %",
    )
    return cells if group.cost is None else (*cells, f"{group.cost:,.0f}")


def _went(report: Report) -> Iterator[str]:
    use = report.total.use
    yield "What the chip-hours went to"
    for went in Went:
        hours = use.went.get(went, 0)
        if hours >= 0.5:
            yield f"  {went.label:<20} {hours:>12,.0f}  {hours / use.chip_hours * 100:>3.0f} %"
    if use.waiting_hours >= 0.5:
        yield f"Waited for, not held: {use.waiting_hours:,.0f} chip-hours"


def _worst(report: Report) -> Iterator[str]:
    yield "Jobs that lost most chip-hours"
    for group in report.worst:
        use = group.use
        yield f"  {_short(group.name, 46):<46} {use.lost:>9,.0f} of {use.chip_hours:,.0f}"
        told = ", ".join(f"{_why(went)} {hours:,.0f}" for went, hours in reasons(group)[:4])
        restarts = ", ".join(f"{count} {cause.lower()}" for cause, count in group.restarts.items())
        whole = told + (f"; restarts: {restarts}" if restarts else "")
        yield from textwrap.wrap(whole, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def _why(went: Went) -> str:
    return went.label.removeprefix("lost to ").removeprefix("lost, ")


def _short(name: str, longest: int) -> str:
    """The end of a name, which tells jobs apart, if the name is longer."""
    return name if len(name) <= longest else f"…{name[1 - longest :]}"
