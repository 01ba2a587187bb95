"""A data set as the trainer's own code reads it, in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob import trainer_program
from tpujob.errors import CommandError
from tpujob.jobs.job_file import read_job
from tpujob.trainer_program import Program
from tpujob_contract.file_endings import FILE_ENDINGS

SHOWN_ROWS = 8
SHOWN_PROCESSES = 8
SHOWN_TOKENS = 12

_ENDINGS = tuple(ending for endings in FILE_ENDINGS.values() for ending in endings)
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def source_of(name: str) -> dict[str, str]:
    """What stands in a job's `data` for a path, a pattern, a URL, or a data set's name on the hub."""
    # A mistyped path is no name on the hub: its first folder is here, or it ends like a file.
    path = Path(name)
    is_here = path.exists() or (len(path.parts) > 1 and Path(path.parts[0]).is_dir())
    is_path = "://" in name or any(character in name for character in "*?[") or is_here or name.endswith(_ENDINGS)
    return {"dataset": name} if not is_path and _HUB_NAME.fullmatch(name) else {"path": name}


@dataclass(frozen=True)
class InspectionRequest:
    """What is looked at, and how a run would divide it."""

    data: Mapping[str, Any]
    """As `spec.trainer.data` has it."""
    batch_size: int
    sequence_length: int
    seed: int
    processes: int


def of_job(file: Path, otherwise: InspectionRequest, processes: int | None) -> InspectionRequest:
    """The data of a job, with what the job says and else what `otherwise` does.

    Raises:
        CommandError: the file is no job, or the job has no trainer block.
    """
    job = read_job(file)
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
    return trainer_program.ask(
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
    rows = "rows unknown before reading" if found["rows"] is None else f"{found['rows']:,} rows"
    yield f"{', '.join(found['roots'])}: {found['files']:,} files ({', '.join(found['formats'])}), {rows}"
    parts = found["parts"]
    yield (
        f"  {found['bytes'] / 1e6:,.1f} MB decoded ({found['file_bytes'] / 1e6:,.1f} MB stored) in {parts['count']:,} "
        f"row groups or parts of {parts['smallest_bytes'] / 1e6:,.2f} to {parts['largest_bytes'] / 1e6:,.2f} MB"
    )
    if found["tokens"] is not None:
        sampled = found["sampled"]
        yield (
            f"  about {found['tokens']:,} tokens ({sampled['rows']:,} rows sampled, {sampled['tokens']:,} tokens); "
            f"an epoch is about {found['batches_in_epoch']:,} batches of {batch_size} x {sequence_length}"
        )
    yield f"  {found['units']:,} units in {found['lanes']} lanes, fingerprint {found['fingerprint']}"
    for line in found["warnings"]:
        yield f"warning: {line}"
    for example in found["examples"]:
        text = json.dumps(example["text"], ensure_ascii=False)
        yield f"example: {example['row']}, {example['tokens']:,} tokens: {text}"
    if len(found["processes"]) > 1:
        yield from _processes(found["processes"])
    if found["first_batch"] is not None:
        yield from _batch(found["first_batch"])


def _processes(processes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for number, each in enumerate(processes[:SHOWN_PROCESSES]):
        rows, lanes = ("-".join(map(str, dict.fromkeys(each[key]))) for key in ("rows", "lanes"))
        yield f"process {number}: rows {rows} of each batch, lanes {lanes}; {each['first_rows']}"
    if len(processes) > SHOWN_PROCESSES:
        yield f"  … {len(processes) - SHOWN_PROCESSES} more processes; --json has all of them"


def _batch(batch: Mapping[str, Any]) -> Iterator[str]:
    rows = batch["rows"]
    yield f"first global batch: {len(rows)} rows, digest {batch['digest']}"
    for number, row in enumerate(rows[:SHOWN_ROWS]):
        ids = " ".join(map(str, row["tokens"][:SHOWN_TOKENS]))
        text = json.dumps(row["text"][:60], ensure_ascii=False)
        yield f"  row {number}: {row['documents']} documents, {ids} … {text}"
    if len(rows) > SHOWN_ROWS:
        yield f"  … {len(rows) - SHOWN_ROWS} more rows; --json has all of them"
