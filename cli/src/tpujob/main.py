"""The command line: the list of its commands."""

import os
from typing import Annotated, Any

import typer
import typer.core

from tpujob.commands import (
    bundle,
    check,
    checkpoint,
    data,
    doctor,
    execute,
    extract,
    get,
    logs,
    new,
    profile,
    render,
    report,
    run,
    stop,
    submit,
    top,
)

# Pydantic would read the metadata of every installed package in search of plugins, which nothing here uses.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
for _name in ("COLUMNS", "LINES"):
    if len(os.environ.get(_name, "")) > 5:  # rich makes any digits a number, and Python refuses thousands of them
        del os.environ[_name]

SUMMARY_CHARACTERS = 55
"""The longest summary of a command, so that `--help` fits 80 columns."""

OTHER_WORDS = {
    "train": "run",
    "start": "run",
    "apply": "submit",
    "create": "submit",
    "status": "describe",
    "why": "describe",
    "list": "get",
    "ls": "get",
    "ps": "top",
    "log": "logs",
    "delete": "stop",
    "cancel": "stop",
    "restart": "retry",
    "validate": "check",
}
"""Names that people try for a command, and its real name."""


PANELS = {
    "On this machine": ("new", "explain", "check", "run", "report"),
    "On a cluster": (
        "render", "submit", "get", "describe", "logs", "top", "exec", "profile", "stop", "resume", "retry",
    ),
    "Data, weights, activations": ("data", "checkpoint", "extract"),
    "For administrators": ("doctor", "bundle"),
}  # fmt: skip
"""The headings of `tpujob --help`; each command is below one of them."""
FILE_VERBS = ("check", "run", "render", "submit")
"""Commands with the file of a job, which may be named as kubectl has it."""


class Verbs(typer.core.TyperGroup):
    """The commands, below headings; a name in OTHER_WORDS is answered with the right one."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes one list for each heading."""
        width = max(map(len, self.commands))
        for heading, verbs in PANELS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(verb.ljust(width), self.commands[verb].get_short_help_str(SUMMARY_CHARACTERS)) for verb in verbs]
                )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer's own, but suggests the right name for one in OTHER_WORDS, and drops the `-f` of `-f JOB.YAML`."""
        if args and args[0] in FILE_VERBS:
            at = next((at for at, word in enumerate(args) if word in ("-f", "--filename")), 0)
            # Behind a program, `-f` is an argument of the program.
            args = [*args[:at], *args[at + 1 :]] if at == 1 or (at and args[0] != "run") else args
        if args and args[0] in OTHER_WORDS and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {OTHER_WORDS[args[0]]!r}?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="tpujob",
    cls=Verbs,
    help="Train on Cloud TPUs with Kubernetes: on this machine with `run`, on a cluster with `submit`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Its help needs rich.markdown and pygments: 0.3 s for colours.
)

for verb in (
    new.new,
    new.explain,
    check.check,
    run.run,
    render.render,
    submit.submit,
    get.get,
    get.describe,
    logs.logs,
    top.top,
    profile.profile,
    report.report,
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
