"""`tpujob profile`."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.commands.options import (
    DEFAULT_RUN_DIRECTORY,
    Context,
    JobName,
    Local,
    Namespace,
    RunDirectory,
    problems_on_stderr,
)
from tpujob.output.errors import CommandError

if TYPE_CHECKING:
    from tpujob_contract.profiling import Message


def profile(
    name: JobName,
    steps: Annotated[int, typer.Option(help="How many steps to trace.", min=1, max=100)] = 5,
    every_process: Annotated[bool, typer.Option("--all", help="Trace every process, not only process 0.")] = False,
    to: Annotated[Path | None, typer.Option("--to", help="Local folder to copy the files into as well.")] = None,
    local: Local = False,
    directory: RunDirectory = DEFAULT_RUN_DIRECTORY,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Trace the next steps of a training job for XProf.

    Also records a device memory profile. Files are saved in profiles/ in the checkpoint directory; view them with
    `xprof --logdir FOLDER`. The job continues, but each traced process pauses while its trace is collected.
    """
    from tpujob.cluster import profiling
    from tpujob.local import runs

    run = f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}"
    with problems_on_stderr():
        files = profiling.Files(to) if to else None
        if local:
            newest = runs.newest(directory / (namespace or "default") / name)
            ports = newest.report_ports if every_process else newest.report_ports[:1]
            places = [f"process {number}" for number in range(len(ports))]
            found = profiling.take_here(ports, newest.secret, steps=steps, run=run, is_fetched=to is not None)
        else:
            places, found = _in_pods(name, namespace, context, every_process, steps=steps, run=run, is_fetched=bool(to))
        failed = False
        for number, message in found:
            if files and "data" in message:
                files.add(message)
            elif said := profiling.sentence(message):
                is_problem = "error" in message or message["state"] == "failed"
                failed = failed or is_problem
                typer.echo(f"{places[number]}: {said}", err=is_problem)
        if to and not failed:
            typer.echo(f"fetched into {to}; look at them with `xprof --logdir {to}`")
    raise typer.Exit(int(failed))


def _in_pods(
    name: str,
    namespace: str | None,
    context: str | None,
    every_process: bool,
    *,
    steps: int,
    run: str,
    is_fetched: bool,
) -> tuple[list[str], Iterator[tuple[int, Message]]]:
    """The names of the profiled hosts, and their messages."""
    from tpujob.cluster import logs, profiling
    from tpujob.cluster.client import Cluster

    cluster = Cluster.connect(context=context, namespace=namespace)
    pods = [pod for pod in cluster.pods(cluster.job(name)) if pod["status"].get("phase") == "Running"]
    chosen = [pod for pod in sorted(pods, key=logs.place) if every_process or logs.place(pod) == (0, 0)]
    if not chosen:
        raise CommandError(f"{name}: process 0 does not run; `tpujob describe {name}` says why", exit_code=1)
    places = [logs.prefix(pod).removesuffix(" | ") for pod in chosen]
    return places, profiling.take_in_pods(cluster, chosen, steps=steps, run=run, is_fetched=is_fetched)
