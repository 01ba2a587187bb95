r"""Byte-level BPE of whole columns of text: each different word is tokenised once, the rest is numpy and Arrow.

GPT-2's way of cutting text into words is

    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

and BPE never looks beyond a word. So a text's ids are those of its words one after the other, and a language has few
different words. Which characters are letters, numbers and white space is asked of the tokenizer's own cutter, so that
both mean the same version of Unicode. Texts for which this would not be the same (characters outside the basic
multilingual plane, added tokens) are left to the library.

It serves GPT-2's pattern alone: who pretrains with `hf://gpt2` would miss it. Other patterns go through the library.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tokenizers

MOST_WORDS = 200_000
"""Kept at a time, some 40 MB; then it begins anew."""

_LETTER, _NUMBER, _OTHER, _SPACE, _UNKNOWN = range(5)
_BMP = 0x10000


class WordMemo:
    """The ids of words seen so far; for the threads of one process together."""

    def __init__(self, tokenizer: Any) -> None:
        """Of a tokenizer that `is_word_by_word`."""
        self._tokenizer = tokenizer
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self._added = "|".join(map(re.escape, added))
        self._classes = _ascii_classes()
        self._has_all_classes = False
        self._lock = threading.Lock()
        self._places: dict[bytes, int] = {}
        self._first = np.empty(0, dtype=np.int64)
        self._count = np.empty(0, dtype=np.int64)
        self._ids = np.empty(0, dtype=np.int32)

    def encode(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Int32 ids of all texts one after the other, and int64 the number of each [texts].

        Args:
            texts: Arrow array of large_string without nulls.
        """
        offsets, data = buffers(texts)
        classes, is_left = self._classes_of(offsets, data)
        if self._added:
            is_left |= pc.match_substring_regex(texts, self._added).to_numpy(zero_copy_only=False)
        if not is_left.any():
            return self._encode_words(offsets, data, classes)
        encoded = self._tokenizer.encode_batch_fast(
            texts.filter(pa.array(is_left)).to_pylist(), add_special_tokens=False
        )
        theirs = [item.ids for item in encoded]
        if is_left.all():
            ours, lengths = np.empty(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
        else:
            kept = texts.filter(pa.array(~is_left))
            ours, lengths = self._encode_words(*buffers(kept), classes[np.repeat(~is_left, np.diff(offsets))])
        counts = np.empty(len(texts), dtype=np.int64)
        counts[is_left] = [len(ids) for ids in theirs]
        counts[~is_left] = lengths
        of_theirs = np.repeat(is_left, counts)
        tokens = np.empty(len(of_theirs), dtype=np.int32)
        tokens[of_theirs] = np.concatenate([np.array(ids, dtype=np.int32) for ids in theirs])
        tokens[~of_theirs] = ours
        return tokens, counts

    def _encode_words(
        self, offsets: np.ndarray, data: np.ndarray, classes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        if not len(data):
            return np.empty(0, dtype=np.int32), np.zeros(len(offsets) - 1, dtype=np.int64)
        starts = word_starts(offsets, data, classes)
        ends = np.append(starts, len(data)).astype(np.int32)
        words = pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(ends), pa.py_buffer(data)])
        coded = words.dictionary_encode()
        with self._lock:
            numbers = self._numbers_of(coded.dictionary.to_pylist())[coded.indices.to_numpy()]
            first, count = self._first[numbers], self._count[numbers]
            ends_of_words = np.cumsum(count)
            tokens = self._ids[np.repeat(first - (ends_of_words - count), count) + np.arange(ends_of_words[-1])]
        borders = np.append(0, ends_of_words)[np.searchsorted(starts, offsets)]
        return tokens, np.diff(borders)

    def _numbers_of(self, words: Sequence[bytes]) -> np.ndarray:
        """The place of each word in the memo, int64; those not in it yet are tokenised."""
        if len(self._places) + len(words) > MOST_WORDS:
            self._forget()
        places = self._places
        new = [word for word in words if word not in places]
        if new:
            encoded = self._tokenizer.encode_batch_fast([word.decode() for word in new], add_special_tokens=False)
            ids = [item.ids for item in encoded]
            for word in new:
                places[word] = len(places)
            counts = np.array([len(each) for each in ids], dtype=np.int64)
            begin = len(self._ids)
            self._first = np.append(self._first, begin + np.cumsum(counts) - counts)
            self._count = np.append(self._count, counts)
            self._ids = np.append(self._ids, np.concatenate([np.array(each, dtype=np.int32) for each in ids]))
        return np.array([places[word] for word in words], dtype=np.int64)

    def _forget(self) -> None:
        self._places = {}
        self._first, self._count, self._ids = self._first[:0], self._count[:0], self._ids[:0]

    def _classes_of(self, offsets: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The class of each byte's character, uint8, and which texts have one whose class is not known."""
        is_left = np.zeros(len(offsets) - 1, dtype=bool)
        classes = self._classes[data]
        leads = np.flatnonzero(data >= 0xC0)
        if not len(leads):
            return classes, is_left
        self._learn_classes()
        points, sizes = _points_at(data, leads)
        found = np.where(points < _BMP, self._classes[np.minimum(points, _BMP - 1)], _UNKNOWN).astype(np.uint8)
        for more in range(4):
            at = sizes > more
            classes[leads[at] + more] = found[at]
        unknown = leads[found == _UNKNOWN]
        is_left[np.searchsorted(offsets, unknown, side="right") - 1] = True
        return classes, is_left

    def _learn_classes(self) -> None:
        """Classes of all characters of the plane, from how the cutter treats each beside a letter and so on."""
        if self._has_all_classes:
            return
        classes = np.full(_BMP, _SPACE, dtype=np.uint8)
        classes[:0x80] = self._classes[:0x80]
        classes[0xD800:0xE000] = _UNKNOWN
        points = np.array([point for point in range(0x80, _BMP) if not 0xD800 <= point < 0xE000])
        for kind, beside in ((_LETTER, "a"), (_NUMBER, "1"), (_OTHER, "!")):
            classes[points[self._joins(points, beside)]] = kind
        self._classes, self._has_all_classes = classes, True

    def _joins(self, points: np.ndarray, beside: str) -> np.ndarray:
        """Whether each character makes one word with the one before it."""
        text = "".join(f"{beside}{chr(point)}\n" for point in points.tolist())
        is_begin = np.zeros(len(text), dtype=bool)
        is_begin[[begin for _, (begin, _) in self._tokenizer.pre_tokenizer.pre_tokenize_str(text)]] = True
        return ~is_begin[1::3]


def is_word_by_word(definition: bytes) -> bool:
    """Whether a tokenizer.json cuts text as GPT-2 does, and does nothing before or after that a word could not know."""
    parts = json.loads(definition)
    model, cutter = parts["model"], parts.get("pre_tokenizer") or {}
    return (
        parts.get("normalizer") is None
        and cutter.get("type") == "ByteLevel"
        and not cutter.get("add_prefix_space", True)
        and cutter.get("use_regex", True)
        and model.get("type") == "BPE"
        and not model.get("dropout")
        and not model.get("continuing_subword_prefix")
        and not model.get("end_of_word_suffix")
    )


def word_starts(offsets: np.ndarray, data: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Where words begin, ascending int64.

    Args:
        offsets: int64 [texts + 1], where texts begin and end.
        data: uint8, UTF-8 of the texts one after the other.
        classes: uint8, of each byte's character.
    """
    size = len(data)
    is_text_start = np.zeros(size + 1, dtype=bool)
    is_text_start[offsets] = True
    is_start = is_text_start[:-1].copy()
    is_start[1:] |= classes[1:] != classes[:-1]
    runs = np.flatnonzero(is_start)
    ends = np.append(runs[1:], size)
    kinds = classes[runs]
    # White space before something else: its last character stands alone, or, a plain space, belongs to what follows.
    spaces = np.flatnonzero((kinds == _SPACE) & ~is_text_start[ends])
    last = _character_starts(data, ends[spaces] - 1)
    is_start[last] = True
    joined = ends[spaces[data[ends[spaces] - 1] == 0x20]]
    is_start[joined] = False
    _cut_contractions(data, classes, is_start, is_text_start, runs, ends)
    return np.flatnonzero(is_start)


def _cut_contractions(
    data: np.ndarray,
    classes: np.ndarray,
    is_start: np.ndarray,
    is_text_start: np.ndarray,
    runs: np.ndarray,
    ends: np.ndarray,
) -> None:
    """An apostrophe takes s, t, m, d, re, ve or ll along, if it begins a word and letters follow."""
    alone = runs[(ends - runs == 1) & (data[runs] == 0x27)]
    alone = alone[is_start[alone] & (alone + 1 < len(data))]
    alone = alone[(classes[alone + 1] == _LETTER) & ~is_text_start[alone + 1]]
    padded = np.append(data, np.zeros(3, dtype=np.uint8))
    first, second = padded[alone + 1], padded[alone + 2]
    goes_on = ~is_text_start[np.minimum(alone + 2, len(data))]
    one = np.isin(first, np.frombuffer(b"stmd", dtype=np.uint8))
    two = goes_on & (
        (((first == ord("r")) | (first == ord("v"))) & (second == ord("e")))
        | ((first == ord("l")) & (second == ord("l")))
    )
    for taken, length in ((one, 2), (two, 3)):
        at = alone[taken]
        is_start[at + 1] = False
        after = at + length
        after = after[after < len(data)]
        is_start[after] = True  # what is left of the letters, or what follows them


def _character_starts(data: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The first byte of the character that each byte belongs to."""
    for _ in range(3):
        places = places - ((data[places] & 0xC0) == 0x80)
    return places


def _points_at(data: np.ndarray, leads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Code points of the characters that begin there, and their bytes; of valid UTF-8."""
    padded = np.append(data, np.zeros(3, dtype=np.uint8)).astype(np.int64)
    first, second, third, fourth = (padded[leads + more] for more in range(4))
    sizes = np.where(first < 0xE0, 2, np.where(first < 0xF0, 3, 4))
    two = (first & 0x1F) << 6 | second & 0x3F
    three = (first & 0x0F) << 12 | (second & 0x3F) << 6 | third & 0x3F
    four = (first & 0x07) << 18 | (second & 0x3F) << 12 | (third & 0x3F) << 6 | fourth & 0x3F
    return np.where(sizes == 2, two, np.where(sizes == 3, three, four)), sizes


def _ascii_classes() -> np.ndarray:
    """By byte; those above 127 are looked up by character."""
    classes = np.full(256, _OTHER, dtype=np.uint8)
    for byte in range(128):
        character = chr(byte)
        if character.isalpha():
            classes[byte] = _LETTER
        elif character.isdigit():
            classes[byte] = _NUMBER
        elif character in "\t\n\v\f\r ":
            classes[byte] = _SPACE
    return classes


def buffers(texts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Offsets int64 [texts + 1] from 0, and the bytes they point into, of a large_string array; no copy."""
    if not len(texts):
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    assert texts.type == pa.large_string(), texts.type
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if data_buffer is None or offsets[-1] == offsets[0]:
        return offsets - offsets[0], np.empty(0, dtype=np.uint8)
    return offsets - offsets[0], np.frombuffer(data_buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]


def make_memo(tokenizer: tokenizers.Tokenizer, definition: bytes) -> WordMemo | None:
    """A memo for a tokenizer, or None where words alone do not tell their ids."""
    return WordMemo(tokenizer) if is_word_by_word(definition) else None
