"""`tpujob logs`."""

from __future__ import annotations

from typing import Annotated

import typer

from tpujob.commands.options import Context, JobName, Namespace, problems_on_stderr
from tpujob.errors import CommandError


def logs(
    name: JobName,
    namespace: Namespace = None,
    context: Context = None,
    slice_index: Annotated[int | None, typer.Option("--slice", help="Only this slice.", min=0)] = None,
    host: Annotated[int | None, typer.Option("--host", help="Only this host of each slice.", min=0)] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come.")] = False,
    merged: Annotated[bool, typer.Option("--merged", help="By time, instead of one host after the other.")] = False,
    tail: Annotated[int | None, typer.Option(help="Last lines of each host; else all.", min=1)] = None,
) -> None:
    """Print the logs of all hosts, or of some, the host that failed first at the front."""
    from tpujob.cluster import logs as cluster_logs
    from tpujob.cluster.client import Cluster

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        cluster.job(name)
        pods = cluster_logs.chosen(cluster.pods(name), slice_index=slice_index, host=host)
        if not pods:
            raise CommandError(
                f"{name}: no pods, and so no logs; `tpujob describe {name}` says why. Logs of pods that are gone are "
                "in your log collector (on GKE: Cloud Logging), the end of each attempt in attempts/ of checkpointDir",
                exit_code=1,
            )
        begin = cluster_logs.prefix if len(pods) > 1 else lambda pod: ""
        if follow:
            lines = cluster_logs.follow(cluster, pods, tail=tail)
        else:
            read = [(begin(pod), cluster_logs.read(cluster, pod, tail=tail)) for pod in pods]
            lines = cluster_logs.merge(read) if merged else cluster_logs.one_by_one(read)
        for line in lines:
            typer.echo(line)
