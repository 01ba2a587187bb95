"""`tpujob describe`."""

from __future__ import annotations

from datetime import UTC, datetime

from tpujob.commands.options import Context, JobName, Namespace, Output, problems_on_stderr
from tpujob.output import OutputFormat, show

FORBIDDEN = 403


def describe(
    name: JobName, namespace: Namespace = None, context: Context = None, output: Output = OutputFormat.TEXT
) -> None:
    """Explain a job's state, its history and what to do.

    As JSON or YAML: the job, its pods, the warnings about them, and the sentences.
    """
    from tpujob.cluster.client import ApiError, Cluster
    from tpujob.cluster.describe import describe as sentences

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        job = cluster.job(name)
        pods = cluster.pods(job)
        path = f"/api/v1/namespaces/{cluster.namespace}/events?fieldSelector=type=Warning"
        related = {name, *(pod["metadata"]["name"] for pod in pods), (job.get("status") or {}).get("jobSet")}
        refused = ""
        try:
            events = [event for event in cluster.items(path) if event["involvedObject"].get("name") in related]
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            events, refused = [], f"  warnings: not shown; your account may not list Events in {cluster.namespace}"
    lines = list(sentences(job, pods, events, datetime.now(UTC)))
    lines[1:1] = [refused] if refused else []
    show({"job": job, "pods": pods, "warnings": events, "sentences": lines}, output, lines)
