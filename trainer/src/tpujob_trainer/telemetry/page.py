"""The page at `/` with the state of this process: an HTML document without scripts.

All of its content is escaped text from the report; a policy forbids the browser to load or run anything else.
"""

import html
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tpujob_trainer.telemetry import charts

type Points = Sequence[tuple[int, float]]
"""Step and loss."""

SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
REFRESH_SECONDS = 5
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 44em; margin: 2em auto; padding: 0 1em; color: #1a1a1a; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: normal; color: #666; width: 14em; vertical-align: top; }
td, th { padding: .15em 0; border-bottom: 1px solid #eee; }
.bar { background: #2b6cb0; height: .8em; display: inline-block; vertical-align: middle; }
.warn { color: #b00020; }
svg { width: 100%; height: auto; }
@media (max-width: 600px) { svg text { font-size: 18px; } th { width: 10em; } }
"""


def render(report: Mapping[str, Any], curve: Points = (), *, name: str = "", now: float | None = None) -> bytes:
    """The page as UTF-8.

    Args:
        report: A snapshot of the report.
        curve: Step and loss of the steps that were read, in order.
        name: Of the job, as namespace/name.
        now: Unix time.
    """
    title = f"{name or 'tpujob'}: {report['phase']}"
    parts = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">',
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
        _table(_facts(report, time.time() if now is None else now)),
        _curve(curve),
        _goodput(report.get("goodput") or {}),
        '<p><a href="/report">report</a> · <a href="/metrics">metrics</a></p></body></html>\n',
    )
    return "".join(parts).encode()


def _facts(report: Mapping[str, Any], now: float) -> Iterator[tuple[str, str, bool]]:
    """Label, value, and whether it is a warning; unknown facts are left out."""
    yield "process", f"{report['process_id']} of {report['processes']}", False
    steps = f" of {report['steps']:,}" if report.get("steps") else ""
    yield "step", f"{report['step']:,}{steps}", False
    for key, label, form in (
        ("loss", "loss, nats per token", "{:.4f}"),
        ("evaluation_loss", "evaluation loss", "{:.4f}"),
        ("tokens_seen", "tokens seen", "{:,}"),
        ("tokens_per_second", "tokens per second", "{:,.0f}"),
        ("mfu", "model FLOPs utilisation", "{:.1%}"),
        ("data_wait_fraction", "waiting for data", "{:.1%}"),
        ("goodput_fraction", "goodput", "{:.1%}"),
    ):
        if isinstance(report.get(key), int | float):
            yield label, form.format(report[key]), False
    if report.get("committed_time"):
        age = max(now - report["committed_time"], 0)
        yield "last checkpoint", f"step {report['committed_step']:,}, {age:,.0f} s ago", False
    for key in ("checkpoint_message", "data_slow_message", "message"):
        if report.get(key):
            yield key.removesuffix("_message").replace("_", " "), str(report[key]), True


def _table(rows: Iterator[tuple[str, str, bool]]) -> str:
    cells = (
        f"<tr><th>{html.escape(label)}</th><td{' class=warn' if warns else ''}>{html.escape(value)}</td></tr>"
        for label, value, warns in rows
    )
    return f"<table>{''.join(cells)}</table>"


def _curve(points: Points) -> str:
    drawn = charts.chart([charts.Line("loss", points)], across="step", label="loss by step")
    return drawn and f"<h2>Loss</h2>{drawn}"


def _goodput(seconds: Mapping[str, float]) -> str:
    total = sum(seconds.values())
    if not total:
        return ""
    rows = (
        f"<tr><th>{html.escape(category.replace('_', ' '))}</th>"
        f'<td><span class="bar" style="width:{60 * spent / total:.1f}%"></span> {spent:,.0f} s</td></tr>'
        for category, spent in sorted(seconds.items(), key=lambda item: -item[1])
        if spent
    )
    return f"<h2>Where the time went</h2><table>{''.join(rows)}</table>"
