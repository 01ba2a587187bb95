"""A unit's rows as tokens."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tpujob_trainer.data.column import Column
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.reader import RetryingReader, UnitReader
from tpujob_trainer.data.stream.rows import usable_rows
from tpujob_trainer.data.text import columns
from tpujob_trainer.data.text.columns import Kind
from tpujob_trainer.data.text.documents import kind_of
from tpujob_trainer.data.text.tokenizer import Tokenizer
from tpujob_trainer.values.errors import ConfigurationError

Bos = Literal["add", "add if missing", "written"]


def bos_of(column: Column) -> Bos:
    """How a text gets its bos token, as in training: a chat template writes it, others may."""
    if column.kind == "text":
        return "add"
    return "add if missing" if column.writes_text else "written"


@dataclass(frozen=True)
class Rows:
    """The usable rows of a unit as tokens."""

    unit: int
    places: np.ndarray
    """int32 [rows], positions in the unit."""
    tokens: np.ndarray
    """int32, one row after the other."""
    lengths: np.ndarray
    """int64 [rows]"""
    skipped: dict[str, int]
    """Rows left out, by cause."""


type ReadsRows = Callable[[int], Rows]
"""Returns the rows of a unit; not thread-safe."""


class Tokens:
    """Reads units of one column as rows of tokens; not thread-safe."""

    def __init__(
        self,
        reader: RetryingReader,
        tokenizer: Tokenizer,
        kind: Kind,
        *,
        is_text: bool,
        longest: int,
        is_cut: bool = True,
        bos: Bos = "add",
    ) -> None:
        """Reads nothing yet.

        Args:
            reader: of the manifest's units.
            tokenizer: makes ids of texts.
            kind: what the column holds.
            is_text: whether it is text, and not ids already.
            longest: most tokens of a row.
            is_cut: whether a longer row is cut off there; otherwise it is left out.
            bos: whether a text gets the token that begins a document.
        """
        self._bos = bos
        self._reader, self._tokenizer, self._kind = reader, tokenizer, kind
        self._is_text, self._longest, self._is_cut = is_text, longest, is_cut

    def __call__(self, unit: int) -> Rows:
        """The rows of a unit.

        Raises:
            NotFoundError: its file is gone, unreadable or changed.
        """
        raw = self._reader.read(unit)
        rows = usable_rows(raw, np.arange(len(raw.column)), 0, self._kind)
        encoded = self._encoded(rows.column)
        lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
        refused = {"no token": lengths == 0, "too long": lengths > self._longest}
        skipped = {cause: len(places) for cause, places in rows.skipped.items()}
        for cause, is_refused in refused.items():
            if count := int(is_refused.sum()):
                skipped[cause] = skipped.get(cause, 0) + count
        kept = np.flatnonzero(~(refused["no token"] | refused["too long"]))
        return Rows(
            unit,
            rows.originals[kept].astype(np.int32),
            np.concatenate([encoded[at] for at in kept]) if len(kept) else np.empty(0, np.int32),
            lengths[kept],
            skipped,
        )

    def _encoded(self, column: Any) -> list[np.ndarray]:
        """Ids as transformers' tokenizers return them: bos if there is one, and eos only if a template writes it."""
        end = self._longest if self._is_cut else None
        if not self._is_text:
            return [np.asarray(ids, dtype=np.int32)[:end] for ids in column.to_pylist()]
        encoded = self._tokenizer.encode(column.to_pylist())
        return [np.array([*self._before(ids), *ids][:end], dtype=np.int32) for ids in encoded]

    def _before(self, ids: list[int]) -> list[int]:
        if self._tokenizer.bos is None or self._bos == "written":
            return []
        is_there = self._bos == "add if missing" and ids[:1] == [self._tokenizer.bos]
        return [] if is_there else [self._tokenizer.bos]


def tokens_of(
    manifest: Manifest,
    tokenizer: Tokenizer,
    *,
    vocab_size: int,
    longest: int,
    is_cut: bool,
    is_prompt: bool,
    retry_seconds: float,
) -> ReadsRows:
    """The function that reads a unit's rows as tokens that a model has embeddings for, by the column of its source.

    Args:
        manifest: of the corpus.
        tokenizer: makes ids of texts.
        vocab_size: of the model.
        longest: most tokens of a row.
        is_cut: whether a longer row is cut off there; otherwise it is left out.
        is_prompt: whether a conversation is written only up to the start of its last answer.
        retry_seconds: how long to retry a file that cannot be read.

    Raises:
        ConfigurationError: the tokenizer has more ids than the model, or has no template for conversations.
    """
    reader = RetryingReader(UnitReader(manifest), retry_seconds)
    # Which part of a text is learned does not matter here.
    columns_read = [
        dataclasses.replace(source.column, loss_on="all", is_prompt=is_prompt) for source in manifest.sources
    ]
    by_source = [
        _tokens_of_column(column, reader, tokenizer, vocab_size=vocab_size, longest=longest, is_cut=is_cut)
        for column in columns_read
    ]
    source_of = manifest.file_source[manifest.unit_file]
    return lambda unit: by_source[int(source_of[unit])](unit)


def _tokens_of_column(
    column: Column, reader: RetryingReader, tokenizer: Tokenizer, *, vocab_size: int, longest: int, is_cut: bool
) -> Tokens:
    if column.kind != "tokens" and tokenizer.vocab_size > vocab_size:
        raise ConfigurationError(
            f"spec.trainer.data.tokenizer: has {tokenizer.vocab_size} ids, and the model has embeddings for "
            f"{vocab_size}; name the model's own tokenizer"
        )
    ids_of_model = functools.partial(columns.tokens, vocab_size=vocab_size)
    return Tokens(
        reader,
        tokenizer.spelled_out if column.special_tokens == "text" else tokenizer,
        ids_of_model if column.kind == "tokens" else kind_of(column, tokenizer),
        is_text=column.kind != "tokens",
        longest=longest,
        is_cut=is_cut,
        bos=bos_of(column),
    )
