"""Looks at a data set with the trainer's own code, started as a process, and tells it in words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tpujob.errors import CommandError

PROGRAM = "tpujob_trainer.data.inspection"
SHOWN_ROWS = 8
SHOWN_TOKENS = 12

FILE_ENDINGS = (".parquet", ".jsonl", ".json", ".txt", ".tar", ".gz", ".zst", ".tfrecord", ".array_record")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def source_of(name: str) -> dict[str, str]:
    """What stands in a job's `data` for a path, a pattern, a URL, or a data set's name on the hub."""
    # A mistyped path is no name on the hub: its first folder is here, or it ends like a file.
    path = Path(name)
    is_here = path.exists() or (len(path.parts) > 1 and Path(path.parts[0]).is_dir())
    is_path = "://" in name or any(character in name for character in "*?[") or is_here or name.endswith(FILE_ENDINGS)
    return {"dataset": name} if not is_path and _HUB_NAME.fullmatch(name) else {"path": name}


def inspect_data(data: Mapping[str, Any], *, batch_size: int, sequence_length: int, seed: int) -> dict[str, Any]:
    """The facts about a data set, as the trainer tells them.

    Raises:
        CommandError: with the trainer's line and exit code.
    """
    asked = {"data": dict(data), "batchSize": batch_size, "sequenceLength": sequence_length, "seed": seed}
    result = subprocess.run(
        [sys.executable, "-m", PROGRAM, json.dumps(asked)], capture_output=True, text=True, check=False
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"{PROGRAM} ended with {result.returncode}"]
        raise CommandError(lines[-1], exit_code=result.returncode)
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


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
    yield from _batch(found["first_batch"])


def _batch(batch: Mapping[str, Any]) -> Iterator[str]:
    rows = batch["rows"]
    yield f"first global batch: {len(rows)} rows, digest {batch['digest']}"
    for number, row in enumerate(rows[:SHOWN_ROWS]):
        ids = " ".join(map(str, row["tokens"][:SHOWN_TOKENS]))
        text = json.dumps(row["text"][:60], ensure_ascii=False)
        yield f"  row {number}: {row['documents']} documents, {ids} … {text}"
    if len(rows) > SHOWN_ROWS:
        yield f"  … {len(rows) - SHOWN_ROWS} more rows; --json has all of them"
