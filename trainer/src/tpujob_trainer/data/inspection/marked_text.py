"""Tokens as text in which special tokens are visible, in spans that are learned or not."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

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
