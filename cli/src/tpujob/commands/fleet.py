"""`tpujob fleet`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpujob.commands.options import Context, Output, problems_on_stderr
from tpujob.fleet.by import By
from tpujob.output import OutputFormat, write
from tpujob_contract.kubernetes_names import OWNER_LABEL

if TYPE_CHECKING:
    from tpujob.fleet.report import Report

OF_STATUS = (
    "Deleted jobs, time in queues and when hours were spent are not in statuses: a job counts whole, with the chips "
    "that it has now. --prometheus knows them."
)


Since = Annotated[str, typer.Option(metavar="SPAN", help="How far back: hours, days or weeks, as in 12h.")]
Group = Annotated[By, typer.Option(help="What usage is added up by.")]
Prometheus = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="TPUJOB_PROMETHEUS",
        help="Prometheus that scrapes the operator and the jobs; without it, statuses of jobs are read.",
    ),
]
TokenFile = Annotated[
    typer.FileText | None,
    typer.Option(
        metavar="FILE",
        help="With --prometheus: file with the bearer token that it asks for; - reads it from standard input.",
        show_default=False,
    ),
]
Until = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"],
        metavar="TIME",
        help="With --prometheus: where the span ends, in UTC, as in 2026-01-12 or 2026-01-12T08:00:00Z; else now.",
        show_default=False,
    ),
]
Prices = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="YAML with your prices, as for `tpujob check`.", show_default=False),
]
OwnerLabel = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help=f"Label of jobs that names their owner; else {OWNER_LABEL}. With --prometheus, the chart's "
        "metrics.ownerLabel says it.",
        show_default=False,
    ),
]
OneNamespace = Annotated[str | None, typer.Option("--namespace", "-n", help="One namespace; else all.")]


def fleet(
    since: Since = "7d",
    by: Group = By.NAMESPACE,
    prometheus: Prometheus = None,
    token_file: TokenFile = None,
    until: Until = None,
    prices: Prices = None,
    owner_label: OwnerLabel = None,
    namespace: OneNamespace = None,
    context: Context = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show where the chips went: use, waste, worst jobs.

    Chips that train, that are held idle and that jobs wait for now; chip-hours, what they went to, and the five jobs
    that lost most of them.
    """
    from tpujob.checking.forecast import read_prices
    from tpujob.errors import CommandError
    from tpujob.fleet.report import to_json
    from tpujob.fleet.text import lines

    with problems_on_stderr():
        table = None if prices is None else read_prices(prices)
        if prometheus:
            if owner_label:
                raise CommandError("--owner-label: metrics have the owner already; set the chart's metrics.ownerLabel")
            try:
                token = None if token_file is None else token_file.read().strip()
            except UnicodeDecodeError as error:
                raise CommandError(f"--token-file: it is no text: {error.reason} at byte {error.start}") from error
            found = _from_prometheus(prometheus, token, since, until, namespace)(by=by, prices=table)
        else:
            if until is not None or token_file is not None:
                raise CommandError("--until and --token-file go with --prometheus: statuses say how jobs are now")
            found = _from_statuses(since, owner_label or OWNER_LABEL, namespace, context)(by=by, prices=table)
    if output is not OutputFormat.TEXT:
        write(to_json(found), output)
        return
    for line in lines(found):
        typer.echo(line)


def _from_prometheus(
    url: str, token: str | None, since: str, until: datetime | None, namespace: str | None
) -> Callable[..., Report]:
    from tpujob.fleet import from_prometheus
    from tpujob.fleet.prometheus import ask
    from tpujob.fleet.report import report
    from tpujob.fleet.span import of_promql, parse_span

    span = parse_span(since)
    end = datetime.now(UTC) if until is None else until.replace(tzinfo=UTC)
    answers = ask(url, token=token, span=of_promql(span), until=end)
    jobs = [job for job in from_prometheus.usage(answers) if namespace in (None, job.labels.namespace)]
    missing = from_prometheus.missing(answers, span)
    return partial(report, jobs, since=end - span, until=end, source="Prometheus", missing=missing)


def _from_statuses(since: str, owner_label: str, namespace: str | None, context: str | None) -> Callable[..., Report]:
    from tpujob.cluster.client import Cluster
    from tpujob.fleet import from_status
    from tpujob.fleet.report import report
    from tpujob.fleet.span import parse_span

    now = datetime.now(UTC)
    start = now - parse_span(since)
    jobs = Cluster.connect(context=context, namespace=namespace).jobs(all_namespaces=namespace is None)
    found = from_status.usage(jobs, owner_label=owner_label, since=start, now=now)
    source = "statuses of jobs in the cluster"
    return partial(report, found.jobs, since=start, until=now, source=source, missing=_missing(found))


def _missing(found: Any) -> Sequence[str]:
    from tpujob.output.words import counted

    sentences = [OF_STATUS]
    if found.began_before:
        sentences.append(f"{counted(found.began_before, 'job')} began before this span.")
    if found.without_report:
        sentences.append(
            f"{counted(found.without_report, 'job')} without a report: counted from start to end, waits included."
        )
    return sentences
