"""`tpujob exec`."""

from typing import Annotated

import typer

from tpujob.commands.options import Context, JobName, Namespace, problems_on_stderr
from tpujob.output.errors import CommandError


def execute(
    name: JobName,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="Program and arguments. No shell: `-- sh -c '…'`.")
    ],
    namespace: Namespace = None,
    context: Context = None,
    slice_index: Annotated[int | None, typer.Option("--slice", help="Only this slice.", min=0)] = None,
    host: Annotated[int | None, typer.Option("--host", help="Only this host of each slice.", min=0)] = None,
) -> None:
    """Run a command on all hosts of a job, or on some.

    Runs beside the job's own program. Prints each line with its host, as it arrives. Exit code: 0 if it is 0 on every
    host, otherwise that of the lowest-numbered host where it is not.
    """
    from tpujob.cluster import executing, logs
    from tpujob.cluster.client import Cluster

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        found = cluster.pods(cluster.job(name))
        pods = sorted(logs.chosen(found, slice_index=slice_index, host=host), key=logs.place)
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        if not running:
            raise CommandError(
                f"{name}: no host runs that was asked for; `tpujob describe {name}` says why", exit_code=1
            )
        for pod in pods:
            if pod not in running:
                typer.echo(f"{logs.prefix(pod)}left out: it is {pod['status'].get('phase')}", err=True)
        codes = [0] * len(running)
        for each in executing.run(cluster, running, command):
            begin = logs.prefix(running[each.pod]) if len(running) > 1 else ""
            if isinstance(each, executing.Line):
                typer.echo(begin + each.text, err=each.is_error)
                continue
            codes[each.pod] = each.exit_code
            if each.exit_code:
                typer.echo(f"{begin}exit code {each.exit_code}{f': {each.message}' if each.message else ''}", err=True)
    raise typer.Exit(next((code for code in codes if code), 0))
