"""`tpujob doctor`."""

from __future__ import annotations

import typer

from tpujob.commands.options import Context, Namespace, Output, problems_on_stderr
from tpujob.output import OutputFormat, write


def doctor(namespace: Namespace = None, context: Context = None, output: Output = OutputFormat.TEXT) -> None:
    """Look for what a cluster needs before a job can run: operator, JobSet, queues, TPU nodes, quota, rights.

    Ends with 1 when something that every job needs is missing.
    """
    from tpujob.cluster.client import Cluster
    from tpujob.cluster.doctor import as_value, examine

    with problems_on_stderr():
        findings = list(examine(Cluster.connect(context=context, namespace=namespace)))
    if output is not OutputFormat.TEXT:
        write(as_value(findings), output)
    else:
        for finding in findings:
            typer.echo(f"{finding.verdict:<8} {finding.subject}: {finding.found}")
            if finding.advice:
                typer.echo(f"{'':<8} → {finding.advice}")
    raise typer.Exit(1 if any(finding.verdict == "missing" for finding in findings) else 0)
