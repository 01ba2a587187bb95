"""Tokenises some rows of a data set before training, shows them, and estimates the tokens of all rows."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.permutation import Permutation, row_order
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.data.stream.rows import usable_rows
from tpujob_trainer.data.text.documents import Encoded, documents_of, kind_of
from tpujob_trainer.data.text.tokenizer import Tokenizer

SPAN_CHARACTERS = 240
"""Characters of a span that are shown: both ends of a longer one."""
MOST_SPANS = 12
"""Spans of a row that are shown; a conversation has one or two for each turn."""
MOST_SPAN_TOKENS = 4096
"""Tokens of a span that are decoded: both ends of a longer one."""


def spans_of(tokenizer: Tokenizer, ids: np.ndarray, learned: np.ndarray) -> list[dict[str, Any]]:
    """The beginning of a row as `{"text", "tokens", "learned"}`, one for each run of learned or other tokens.

    Args:
        tokenizer: made the ids.
        ids: int32 [tokens]
        learned: bool [tokens]: whether each is a target that counts.
    """
    borders = np.flatnonzero(np.diff(learned)) + 1
    spans = []
    for begin, end in itertools.pairwise([0, *borders[:MOST_SPANS].tolist(), len(ids)][: MOST_SPANS + 1]):
        text = shortened(_text(tokenizer, ids[begin:end]))
        spans.append({"text": text, "tokens": end - begin, "learned": bool(learned[begin])})
    return spans


def shortened(text: str, characters: int = SPAN_CHARACTERS) -> str:
    """A text of at most `characters` characters: both ends of a longer one."""
    if len(text) <= characters:
        return text
    half = (characters - 3) // 2
    return f"{text[:half]} … {text[-half:]}"


def _text(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    if len(ids) > MOST_SPAN_TOKENS:
        half = MOST_SPAN_TOKENS // 2
        return _text(tokenizer, ids[:half]) + " … " + _text(tokenizer, ids[-half:])
    # The byte tokenizer writes no text for the tokens around a document.
    names = {
        number: name for number, name in ((tokenizer.bos, "<bos>"), (tokenizer.eos, "<eos>")) if number is not None
    }
    names = {number: name for number, name in names.items() if not tokenizer.decode([number], with_special=True)}
    runs = itertools.groupby(ids.tolist(), key=names.__contains__)
    return "".join(
        "".join(names[number] for number in run) if is_mark else tokenizer.decode(list(run), with_special=True)
        for is_mark, run in runs
    )


SAMPLED_UNITS = 8
"""Units that are sampled of each source, at least."""
SAMPLED_ROWS = 256
"""Rows that are sampled of each unit that is not small: an exact count would need all of them tokenised."""
SMALL_UNIT_BYTES = 1 << 18
"""A unit up to this size is tokenised whole."""
ENOUGH_ROWS = SAMPLED_UNITS * SAMPLED_ROWS
"""Rows of a source that are enough to estimate their length; lengths of rows differ by powers of ten."""
ENOUGH_BYTES = 16 << 20
"""Decoded bytes of a source's sampled units that are enough, even with fewer rows."""


@dataclass(frozen=True)
class UnitSample:
    """Rows of one unit, tokenised."""

    source: int
    elements: int
    """Of the unit, as the manifest counts them: rows, bytes or files."""
    bytes: int
    """Of the unit, as the manifest has them."""
    unit_rows: int
    """Rows in the unit, including those that cannot be used."""
    rows: int
    """Rows that were tokenised, including those that cannot be used."""
    tokens: int

    @property
    def is_whole(self) -> bool:
        """Whether every row of the unit was tokenised."""
        return self.rows == self.unit_rows

    @property
    def unit_tokens(self) -> float:
        """Tokens of the whole unit, if its other rows are as long."""
        return self.tokens * self.unit_rows / self.rows if self.rows else 0.0


@dataclass(frozen=True)
class Sample:
    """Some rows, tokenised."""

    units: tuple[UnitSample, ...]
    skipped: dict[str, int]
    examples: list[dict[str, Any]]

    @property
    def rows(self) -> int:
        """Rows that were tokenised, including those that cannot be used."""
        return sum(unit.rows for unit in self.units)

    @property
    def tokens(self) -> int:
        """Tokens of these rows."""
        return sum(unit.tokens for unit in self.units)


@dataclass(frozen=True)
class Size:
    """Rows and tokens of a whole data set, as far as they are known."""

    rows: int | None
    """None: a format does not know it without reading, and not everything was read."""
    tokens: int | None
    """None: there is nothing to estimate it from."""
    is_exact: bool
    """Whether every row was read."""


def sample_rows(manifest: Manifest, tokenizer: Tokenizer, *, seed: int, examples: int) -> Sample:
    """Rows from some units of all sources, in the order of training."""
    reader = UnitReader(manifest)
    sampled: list[UnitSample] = []
    skipped: dict[str, int] = {}
    shown: list[dict[str, Any]] = []
    for number in _some_units(manifest, seed, sampled=sampled):
        source = int(manifest.file_source[manifest.unit_file[number]])
        column = manifest.sources[source].column
        raw = reader.read(number)
        num_bytes = int(manifest.unit_bytes[number])
        most_rows = None if num_bytes <= SMALL_UNIT_BYTES else SAMPLED_ROWS
        order = row_order(len(raw.column), "rows", seed, 0, number)[:most_rows]
        usable = usable_rows(raw, order, 0, kind_of(column, tokenizer))
        documents = documents_of(column, tokenizer)
        encoded = documents(usable.column)
        if refused := int((encoded.lengths == 0).sum()):
            skipped[documents.refusal] = skipped.get(documents.refusal, 0) + refused
        for cause, places in usable.skipped.items():
            skipped[cause] = skipped.get(cause, 0) + len(places)
        tokens = int(encoded.lengths.sum())
        elements = int(manifest.unit_count[number])
        sampled.append(UnitSample(source, elements, num_bytes, len(raw.column), len(order), tokens))
        if len(shown) < examples and len(encoded.lengths) and encoded.lengths[0]:
            name = manifest.name_row(number, int(usable.originals[0]))
            shown.append({"row": name, **_example(encoded, tokenizer)})
    return Sample(tuple(sampled), skipped, shown)


def _example(encoded: Encoded, tokenizer: Tokenizer) -> dict[str, Any]:
    """The first document, as the model gets it."""
    length = int(encoded.lengths[0])
    learned = np.ones(length, dtype=bool) if encoded.learned is None else encoded.learned[:length]
    spans = spans_of(tokenizer, encoded.ids[:length], learned)
    return {
        "tokens": length,
        "learned_tokens": int(learned.sum()),
        "text": "".join(span["text"] for span in spans),
        "spans": spans,
    }


def size_of(manifest: Manifest, sample: Sample) -> Size:
    """Rows and tokens of all data: counted if every row was read, else extrapolated for each source from its sample.

    Tokens scale with rows; if a format does not count them, with the bytes of whole units, which have the same share of
    images and headers as the rest.
    """
    if len(sample.units) == manifest.num_units and all(unit.is_whole for unit in sample.units):
        return Size(sample.rows, sample.tokens, is_exact=True)
    tokens = 0.0
    for number, units in enumerate(manifest.source_units):
        here = [unit for unit in sample.units if unit.source == number]
        counts = manifest.unit_count if manifest.num_rows is not None else manifest.unit_bytes
        read = sum(unit.elements if manifest.num_rows is not None else unit.bytes for unit in here)
        if not read:
            return Size(manifest.num_rows, None, is_exact=False)
        tokens += sum(unit.unit_tokens for unit in here) * int(counts[units.start : units.stop].sum()) / read
    return Size(manifest.num_rows, round(tokens), is_exact=False)


def _some_units(manifest: Manifest, seed: int, *, sampled: Sequence[UnitSample]) -> Iterator[int]:
    """Units of each source in the order of training, until there are enough; the caller appends to `sampled`."""
    for source, units in enumerate(manifest.source_units):
        order = Permutation(len(units), "units", seed, 0, source)
        before = len(sampled)
        for index in range(len(units)):
            here = sampled[before:]
            is_enough = sum(unit.rows for unit in here) >= ENOUGH_ROWS or sum(u.bytes for u in here) >= ENOUGH_BYTES
            if index >= SAMPLED_UNITS and is_enough:
                break
            yield units[order[index]]
