"""The command line: which verbs there are."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tpujob.commands import (
    bundle,
    check,
    checkpoint,
    data,
    describe,
    doctor,
    execute,
    extract,
    get,
    logs,
    new,
    profile,
    render,
    run,
    stop,
    submit,
    top,
)

# Pydantic would read the metadata of every installed package in search of plugins, which nothing here uses.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

app = typer.Typer(
    name="tpujob",
    help="Train on Cloud TPUs with Kubernetes: on this machine with `run`, on a cluster with `submit`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Its help needs rich.markdown and pygments: 0.3 s for colours.
)

for verb in (
    new.new,
    check.check,
    run.run,
    render.render,
    submit.submit,
    get.get,
    describe.describe,
    logs.logs,
    top.top,
    profile.profile,
    stop.stop,
    stop.resume,
    stop.retry,
    doctor.doctor,
    bundle.bundle,
):
    app.command()(verb)
app.command("exec")(execute.execute)
app.add_typer(data.app, name="data")
app.add_typer(checkpoint.app, name="checkpoint")
app.add_typer(extract.app, name="extract")


def _version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"tpujob {version('tpujob')}")
        raise typer.Exit


@app.callback()
def tpujob(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Train on Cloud TPUs with Kubernetes: on this machine with `run`, on a cluster with `submit`."""
