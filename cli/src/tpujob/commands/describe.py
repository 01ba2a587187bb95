"""`tpujob describe`."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from tpujob.commands.options import Context, JobName, Namespace, problems_on_stderr


def describe(name: JobName, namespace: Namespace = None, context: Context = None) -> None:
    """Say in sentences where a job stands, why, what happened to it, and what to do."""
    from tpujob.cluster.client import Cluster
    from tpujob.cluster.describe import describe as sentences

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        job, pods = cluster.job(name), cluster.pods(name)
        path = f"/api/v1/namespaces/{cluster.namespace}/events?fieldSelector=type=Warning"
        related = {name, *(pod["metadata"]["name"] for pod in pods), (job.get("status") or {}).get("jobSet")}
        events = [event for event in cluster.items(path) if event["involvedObject"].get("name") in related]
    for line in sentences(job, pods, events, datetime.now(UTC)):
        typer.echo(line)
