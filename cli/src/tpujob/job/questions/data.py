"""A data set as the trainer's code reads it, as data and as text."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from tpujob.job.job_file import read_job
from tpujob.job.questions.trainer_program import Program, ask
from tpujob.output.errors import CommandError
from tpujob.output.words import counted, size

SHOWN_ROWS = 8
SHOWN_PROCESSES = 8
SHOWN_TOKENS = 12
SHOWN_SPANS = 4
SHOWN_CHARACTERS = 60
"""The most of each span of a row."""
OPENING, CLOSING = "⟦", "⟧"


@dataclass(frozen=True)
class InspectionRequest:
    """The data to inspect, and how a run would divide it."""

    data: Mapping[str, Any]
    """As in `spec.trainer.data`."""
    batch_size: int
    sequence_length: int
    seed: int
    processes: int


def of_job(
    file: Path, otherwise: InspectionRequest, processes: int | None, settings: Sequence[str] = ()
) -> InspectionRequest:
    """The request for a job's data, with the values of the job and `--set`, else those of `otherwise`.

    Raises:
        CommandError: the file is not a job, or the job has no trainer block.
    """
    job = read_job(file, settings)
    trainer = job.spec.trainer
    if trainer is None:
        raise CommandError(f"{file}: the job has no trainer block, so nobody knows its data")
    return InspectionRequest(
        trainer.get("data") or {},
        trainer.get("batchSize", otherwise.batch_size),
        trainer.get("sequenceLength", otherwise.sequence_length),
        trainer.get("seed", otherwise.seed),
        processes or (1 if job.spec.workers else job.hosts),
    )


def inspect_data(asked: InspectionRequest) -> dict[str, Any]:
    """The trainer's facts about a data set.

    Raises:
        CommandError: with the trainer's line and exit code.
    """
    return ask(
        Program.DATA,
        {
            "data": dict(asked.data),
            "batchSize": asked.batch_size,
            "sequenceLength": asked.sequence_length,
            "seed": asked.seed,
            "processes": asked.processes,
        },
    )


def describe(found: Mapping[str, Any], *, batch_size: int, sequence_length: int) -> Iterator[str]:
    """The facts in lines for people."""
    rows = "an unknown number of rows" if found["rows"] is None else counted(found["rows"], "row")
    yield f"{', '.join(found['roots'])}: {counted(found['files'], 'file')} ({', '.join(found['formats'])}), {rows}"
    yield from left_out(found.get("left_out") or {})
    parts = found["parts"]
    yield (
        f"  {size(found['bytes'])} decoded ({size(found['file_bytes'])} stored) in "
        f"{counted(parts['count'], 'row group or part', 'row groups or parts')} "
        f"of {size(parts['smallest_bytes'])} to {size(parts['largest_bytes'])}"
    )
    yield f"  {_tokens(found)}; an epoch is {_epoch(found)} of {batch_size} x {sequence_length}"
    yield (
        f"  {counted(found['units'], 'unit')} in {counted(found['lanes'], 'lane')}, fingerprint {found['fingerprint']}"
    )
    for line in found["warnings"]:
        yield f"warning: {line}"
    if not found["learns_all"]:
        yield f"learned tokens stand in {OPENING} {CLOSING}; the loss of the others is not counted"
    for example in found["examples"]:
        learned = "" if found["learns_all"] else f", {example['learned_tokens']:,} learned"
        text = marked(example["spans"], is_marked=not found["learns_all"])
        yield f"example: {example['row']}, {counted(example['tokens'], 'token')}{learned}: {text}"
    if len(found["processes"]) > 1:
        yield from _processes(found["processes"])
    if found["first_batch"] is not None:
        yield from _batch(found["first_batch"], is_marked=not found["learns_all"])


def _tokens(found: Mapping[str, Any]) -> str:
    if found["tokens"] is None:
        return "an unknown number of tokens"
    if found["is_exact"]:
        return f"{counted(found['tokens'], 'token')} (every row was counted)"
    sampled = found["sampled"]
    return f"about {found['tokens']:,} tokens ({sampled['rows']:,} rows sampled, {sampled['tokens']:,} tokens)"


def _epoch(found: Mapping[str, Any]) -> str:
    if found["batches_in_epoch"] is None:
        return "an unknown number of batches"
    if not found["batches_in_epoch"]:
        return "less than a batch"
    return f"{'' if found['is_exact'] else 'about '}{counted(found['batches_in_epoch'], 'batch', 'batches')}"


def left_out(found: Mapping[str, Any]) -> Iterator[str]:
    """A line for each reason why files of a folder are not read, with the first of them."""
    for why, each in sorted(found.items()):
        more = f" and {each['count'] - len(each['names']):,} more" if each["count"] > len(each["names"]) else ""
        yield f"  left out: {counted(each['count'], 'file')} ({why}): {', '.join(each['names'])}{more}"


def marked(spans: Sequence[Mapping[str, Any]], *, is_marked: bool) -> str:
    """A row in quotes, with learned text in brackets and, on a terminal, in green."""
    texts = []
    for span in spans:
        text = json.dumps(span["text"], ensure_ascii=False)[1:-1]
        is_learned = is_marked and span["learned"]
        texts.append(typer.style(f"{OPENING}{text}{CLOSING}", fg="green") if is_learned else text)
    return f'"{"".join(texts)}"'


def _processes(processes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for number, each in enumerate(processes[:SHOWN_PROCESSES]):
        rows, lanes = ("-".join(map(str, dict.fromkeys(each[key]))) for key in ("rows", "lanes"))
        yield f"process {number}: rows {rows} of each batch, lanes {lanes}; {each['first_rows']}"
    if len(processes) > SHOWN_PROCESSES:
        yield f"  … {len(processes) - SHOWN_PROCESSES} more processes; --json has all of them"


def _batch(batch: Mapping[str, Any], *, is_marked: bool) -> Iterator[str]:
    rows = batch["rows"]
    learned = f", {counted(batch['learned_tokens'], 'token')} learned" if is_marked else ""
    yield f"first global batch: {counted(len(rows), 'row')}, digest {batch['digest']}{learned}"
    for number, row in enumerate(rows[:SHOWN_ROWS]):
        ids = " ".join(map(str, row["tokens"][:SHOWN_TOKENS]))
        shown = [{**span, "text": _shortened(span["text"])} for span in row["spans"][:SHOWN_SPANS]]
        text = marked(shown, is_marked=is_marked)
        yield f"  row {number}: {counted(row['documents'], 'document')}, {ids} … {text}"
    if len(rows) > SHOWN_ROWS:
        yield f"  … {len(rows) - SHOWN_ROWS} more rows; --json has all of them"


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
