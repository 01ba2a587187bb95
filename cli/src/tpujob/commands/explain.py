"""`tpujob explain`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.commands.options import Output, problems_on_stderr
from tpujob.output import OutputFormat, show

if TYPE_CHECKING:
    from tpujob.job.fields import Field

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
