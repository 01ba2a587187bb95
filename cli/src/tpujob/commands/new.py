"""`tpujob new` and `tpujob explain`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.commands.options import Output, problems_on_stderr
from tpujob.output.documents import OutputFormat, show
from tpujob.output.errors import CommandError

if TYPE_CHECKING:
    from tpujob.job.fields import Field


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


WIDTH = 100


def explain(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[FIELD]",
            help="Path of a field, such as spec.trainer.data.path, or the end of one, such as data.path.",
        ),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Explain a field of a job: type, default, fields below.

    Without FIELD, lists the fields of spec. If several paths end in FIELD, lists them.
    """
    from tpujob.job import fields

    with problems_on_stderr():
        known = fields.job_fields()
        if path is None or path == "spec":
            found = fields.below(known, fields.Field("spec", "mapping", ""))
            below = []
        else:
            found = fields.find(known, path)
            below = fields.below(known, found[0]) if len(found) == 1 else []
    listed = [{**each.as_json(), "fields": [inner.path for inner in below]} for each in found]
    show(listed, output, _one(found[0], below) if len(found) == 1 else _list(found, ""))


def _one(field: Field, below: list[Field]) -> Iterator[str]:
    required = ", required" if field.is_required else ""
    yield f"{field.path}: {field.kind.replace('`', '')}{required}"
    yield from (f"  {line}" for line in textwrap.wrap(field.meaning, WIDTH))
    yield from _list(below, f"{field.path}.")


def _list(found: list[Field], begin: str) -> Iterator[str]:
    """A line for each field, with the first sentence about it."""
    names = [each.path.removeprefix(begin).rpartition("[].")[2] if begin else each.path for each in found]
    width = max(map(len, names), default=0)
    for name, each in zip(names, found, strict=True):
        sentence = each.meaning.partition(". ")[0].rstrip(".")
        sentence = textwrap.shorten(sentence, WIDTH - width - 4, placeholder=" …")
        yield f"  {name.ljust(width)}  {sentence}".rstrip()
