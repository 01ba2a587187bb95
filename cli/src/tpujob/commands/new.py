"""`tpujob new`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpujob.commands.options import problems_on_stderr
from tpujob.errors import CommandError


def new(
    out: Annotated[Path, typer.Argument(metavar="JOB.YAML", help="File to write.")] = Path("job.yaml"),
    name: Annotated[str, typer.Option(prompt="Name of the job", help="metadata.name")] = "my-model",
    accelerator: Annotated[
        str, typer.Option(prompt="Accelerator (cpu:2x4 is this laptop; v5e-16, v6e-8, v5p-128 … are TPUs)")
    ] = "cpu:2x4",
    data: Annotated[
        str, typer.Option(prompt="Data: a pattern of files, gs://…, or a Hugging Face name")
    ] = "data/*.parquet",
    preset: Annotated[str, typer.Option(prompt="Model preset (tiny, small, llama3-8b, …)")] = "tiny",
) -> None:
    """Ask four questions and write a commented job."""
    from tpujob.job.job_file import read_job
    from tpujob.job.template import job_text

    with problems_on_stderr():
        if out.exists():
            raise CommandError(f"JOB.YAML: {out} is there already; name another file")
        text = job_text(name=name, accelerator=accelerator, data=data, preset=preset)
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"JOB.YAML: {out}: {error.strerror}; name a file where you may write") from error
        try:
            read_job(out)
        except CommandError:
            out.unlink()
            raise
    verb = "run" if accelerator.startswith("cpu:") else "submit"
    typer.echo(f"{out}: written; `tpujob {verb} {out}` starts it")
