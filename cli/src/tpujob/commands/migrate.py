"""`tpujob migrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpujob.commands.options import problems_on_stderr


def migrate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML or JSON with TpuTrainingJobs.")],
    write: Annotated[bool, typer.Option("--write", help="Change the files; else print what would change.")] = False,
) -> None:
    """Bring job files to the newest version of the API.

    Comments, order and other objects in the files stay as they are.
    """
    from tpujob.jobs import migrating

    with problems_on_stderr():
        changes = [(path, *migrating.difference(path)) for path in files]
        for path, after, diff in changes:
            if not diff:
                typer.echo(f"{path}: no TpuTrainingJob of an older version", err=True)
            elif write:
                migrating.write(path, after)
                typer.echo(f"{path}: written")
            else:
                typer.echo(diff, nl=False)
