"""The HTML page at `/` of the metrics port: jobs, their phases, who leads; one document without scripts.

All content is escaped text; a policy forbids the browser to load or run anything else.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tpujob_operator.controller.job_gauges import JobFacts
from tpujob_operator.observe.terminations import Key
from tpujob_resource.models.status import Phase, Traits, phases_with

SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
REFRESH_SECONDS = 10
MOST_JOBS = 500
"""Rows of the table; the counts above it are of all jobs."""
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64em; margin: 2em auto; padding: 0 1em; color: #1a1a1a; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: normal; color: #666; }
td, th { padding: .15em 1em .15em 0; border-bottom: 1px solid #eee; vertical-align: top; }
.warn { color: #b00020; }
"""
COLUMNS = ("job", "phase", "accelerator", "hosts ready", "TPU chips", "crashes", "other restarts")
WARNS = phases_with(Traits.WARNING)
"""Phases that need attention."""


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The content of the page."""

    identity: str
    """Of this process."""
    leads: bool
    namespaces: tuple[str, ...]
    """Those that are served; empty: all."""
    jobs: Mapping[Key, JobFacts]
    """As this process knows them."""


def render(overview: Overview) -> bytes:
    """The page as UTF-8."""
    title = f"tpujob operator: {'leads' if overview.leads else 'stands by'}"
    parts = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">',
        f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>",
        "<table>",
        *(f"<tr><th>{label}</th><td>{html.escape(value)}</td></tr>" for label, value in _facts(overview)),
        "</table>",
        _jobs(overview),
        '<p><a href="/metrics">metrics</a></p></body></html>\n',
    )
    return "".join(parts).encode()


def _facts(overview: Overview) -> Iterator[tuple[str, str]]:
    yield "this process", overview.identity or "not named"
    yield "namespaces", ", ".join(overview.namespaces) or "all"
    counts = Counter(facts.phase for facts in overview.jobs.values())
    by_phase = ", ".join(f"{counts[phase]} {phase}" for phase in Phase if counts[phase])
    yield "jobs", f"{len(overview.jobs)}{f': {by_phase}' if by_phase else ''}"
    if not overview.leads:
        yield "note", "Another operator leads and knows the jobs better; what is below comes from lists."


def _jobs(overview: Overview) -> str:
    if not overview.jobs:
        return ""
    shown = sorted(overview.jobs.items())[:MOST_JOBS]
    rows = "".join(f"<tr>{''.join(_cells(key, facts))}</tr>" for key, facts in shown)
    left_out = len(overview.jobs) - len(shown)
    more = f"<p>{left_out} more are not shown.</p>" if left_out else ""
    head = "".join(f"<th>{column}</th>" for column in COLUMNS)
    return f"<h2>Jobs</h2><table><tr>{head}</tr>{rows}</table>{more}"


def _cells(key: Key, facts: JobFacts) -> Iterable[str]:
    restarts = dict(facts.restarts)
    crashes = restarts.pop("Crash", 0)
    values = (
        "/".join(key),
        facts.phase,
        facts.accelerator,
        f"{facts.hosts_ready} of {facts.hosts}",
        str(facts.chips),
        str(crashes),
        str(sum(restarts.values())),
    )
    for column, value in zip(COLUMNS, values, strict=True):
        warns = (column == "phase" and value in WARNS) or (column == "crashes" and crashes > 0)
        yield f"<td{' class=warn' if warns else ''}>{html.escape(value)}</td>"
