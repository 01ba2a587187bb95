"""What a tokenizer is: text to token ids and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tpujob_trainer.data.text.chat import ChatTemplate

FIELD = "spec.trainer.data.tokenizer"


class Tokenizer(Protocol):
    """What the data, the model and the sample need of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""

    @property
    def bos(self) -> int | None:
        """Begins each document, where the tokenizer has such a token."""

    @property
    def eos(self) -> int:
        """Ends each document."""

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits; another tokenizer, another fingerprint."""

    @property
    def chat_template(self) -> ChatTemplate | None:
        """Writes a conversation as text; None where the tokenizer's author gave no template."""

    @property
    def special_texts(self) -> Mapping[str, str]:
        """How special tokens are written, by name: bos_token, eos_token and the like; others by themselves."""

    @property
    def spelled_out(self) -> Tokenizer:
        """The same tokenizer, for which special tokens in a text are characters like others."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without the tokens that begin and end a document; special tokens in it are theirs."""

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The same ids, int32 [tokens], and the characters that each stands for, int64 [tokens, 2]: begin and end."""

    def decode(self, ids: Sequence[int], *, with_special: bool = False) -> str:
        """The text of these ids; bytes that are no UTF-8 leave U+FFFD.

        Args:
            ids: Of tokens.
            with_special: Special tokens as they are written; otherwise they leave no trace.
        """

    def documents(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Whole documents: int32 ids one after the other, and int64 tokens of each [texts].

        A text that has a special token in it has none: it would end or begin a document in the middle of one.

        Args:
            texts: Arrow array of large_string without nulls.
        """


def fingerprint(definition: bytes, bos: int | None, eos: int, chat_template: str | None) -> str:
    """32 hexadecimal digits of all that the ids of a document depend on."""
    digest = hashlib.blake2b(definition, digest_size=16)
    digest.update(f"{bos}/{eos}".encode())
    digest.update((chat_template or "").encode())
    return digest.hexdigest()
