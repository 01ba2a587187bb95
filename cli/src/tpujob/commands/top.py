"""`tpujob top`."""

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from tpujob.commands.options import Context, Namespace, Output, problems_on_stderr
from tpujob.output.documents import OutputFormat, write

INTERVAL_SECONDS = 2.0


def top(
    namespace: Namespace = None,
    context: Context = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Jobs of all namespaces.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and end.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Watch running jobs until Ctrl-C.

    Step, tokens/s, loss, last checkpoint, restarts. As JSON or YAML: the list of these jobs, once.
    """
    from tpujob.cluster import table
    from tpujob.cluster.client import Cluster, Object
    from tpujob_resource.models.phases import Traits, phases_with

    idle = phases_with(Traits.TERMINAL | Traits.EDITABLE)

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)

        def under_way() -> list[Object]:
            jobs = cluster.jobs(all_namespaces=all_namespaces)
            return [job for job in jobs if (job.get("status") or {}).get("phase") not in idle]

        def lines() -> list[str]:
            return table.render([table.COLUMNS, *table.rows(under_way(), datetime.now(UTC))])

        if output is not OutputFormat.TEXT:
            write(under_way(), output)
            return
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
