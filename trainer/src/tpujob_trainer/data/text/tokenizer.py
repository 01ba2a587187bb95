"""The interface of a tokenizer: text to token ids and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tpujob_trainer.data.text.chat import ChatTemplate

FIELD = "spec.trainer.data.tokenizer"


class Tokenizer(Protocol):
    """What the data, the model and the sample need from a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""

    @property
    def bos(self) -> int | None:
        """The token that begins each document; None: the tokenizer has none."""

    @property
    def eos(self) -> int:
        """The token that ends each document."""

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits, which differ between tokenizers."""

    @property
    def chat_template(self) -> ChatTemplate | None:
        """Writes a conversation as text; None: the tokenizer has no template."""

    @property
    def special_texts(self) -> Mapping[str, str]:
        """The text of each special token, by name: bos_token, eos_token and the like; others by their own text."""

    @property
    def spelled_out(self) -> Tokenizer:
        """The same tokenizer, which encodes special tokens in a text as ordinary characters."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without added bos and eos; a special token in a text becomes its id."""

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The same ids, int32 [tokens], and the characters that each stands for, int64 [tokens, 2]: begin and end."""

    def decode(self, ids: Sequence[int], *, with_special: bool = False) -> str:
        """The text of these ids; bytes that are not UTF-8 become U+FFFD.

        Args:
            ids: Of tokens.
            with_special: Whether special tokens are written as text; otherwise they are left out.
        """

    def documents(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Whole documents: concatenated ids, int32, and the number of tokens of each, int64 [texts].

        A text with a special token in it gets no tokens: the token would end or begin a document in the middle of one.

        Args:
            texts: Arrow array of large_string without nulls.
        """


def fingerprint(definition: bytes, bos: int | None, eos: int, chat_templates: Mapping[str, str]) -> str:
    """A digest, 32 hexadecimal digits, of everything that the ids of a document depend on."""
    digest = hashlib.blake2b(definition, digest_size=16)
    digest.update(f"{bos}/{eos}".encode())
    for name in ("default", "tool_use"):
        digest.update(chat_templates.get(name, "").encode())
    return digest.hexdigest()
