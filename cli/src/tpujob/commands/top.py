"""`tpujob top`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from tpujob.commands.options import Context, Namespace, problems_on_stderr

INTERVAL_SECONDS = 2.0
IDLE = ("Succeeded", "Failed", "Suspended", "Invalid")


def top(
    namespace: Namespace = None,
    context: Context = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Jobs of all namespaces.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and end.")] = False,
) -> None:
    """Watch the jobs that are under way, until Ctrl-C: step, tokens/s, loss, last checkpoint, restarts."""
    from tpujob.cluster import table
    from tpujob.cluster.client import Cluster

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)

        def lines() -> list[str]:
            jobs = cluster.jobs(all_namespaces=all_namespaces)
            under_way = [job for job in jobs if (job.get("status") or {}).get("phase") not in IDLE]
            return table.render([table.COLUMNS, *table.rows(under_way, datetime.now(UTC))])

        if once:
            typer.echo("\n".join(lines()))
            return
        from rich.live import Live
        from rich.text import Text

        try:
            with Live(auto_refresh=False) as live:
                while True:
                    live.update(Text("\n".join(lines())), refresh=True)
                    time.sleep(INTERVAL_SECONDS)
        except KeyboardInterrupt:
            return
