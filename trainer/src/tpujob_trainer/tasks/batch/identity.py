"""Everything that determines the output of a batch job; a job that is resumed must have the same."""

from __future__ import annotations

from typing import Any

from tpujob_trainer import data
from tpujob_trainer.config.schema import BLOCK
from tpujob_trainer.corpus.extract import description
from tpujob_trainer.distributed.host_check import versions
from tpujob_trainer.model.shape import described
from tpujob_trainer.tasks.batch.parts import BatchParts


def identity_of(parts: BatchParts) -> dict[str, Any]:
    """The values that determine the output, by field."""
    task, manifest = parts.task, parts.manifest
    return {
        "corpus": manifest.fingerprint,
        "units": manifest.num_units,
        "rows": manifest.num_rows,
        "sources": [source.root for source in manifest.sources],
        description.TASK: task.name,
        f"{BLOCK}.model": described(parts.shape),
        description.FROM: parts.config.model.from_,
        f"{BLOCK}.seed": parts.config.seed,
        f"{BLOCK}.data.tokenizer": parts.tokenizer.fingerprint,
        f"{BLOCK}.sequenceLength": parts.length,
        **{f"{task.field}.{key}": value for key, value in task.described.items()},
        f"{task.field}.format": task.units.format,
        **_columns(manifest),
        description.IMAGE: description.image(versions()),
    }


def _columns(manifest: data.Manifest) -> dict[str, Any]:
    """The special-token handling by field; none for plain text and tokens, with the same IDs as in earlier releases."""
    found = {}
    for number, source in enumerate(manifest.sources):
        is_plain = source.column.kind in ("text", "tokens") and source.column.special_tokens != "text"
        if not is_plain:
            part = f"mixture[{number}]." if number else ""  # the first keeps its key, for jobs that are resumed
            found[f"{BLOCK}.data.{part}specialTokens"] = source.column.special_tokens
    return found
