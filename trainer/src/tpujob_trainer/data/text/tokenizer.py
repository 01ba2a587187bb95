"""The interface of a tokenizer, text to token ids and back; bytes as tokens, if no tokenizer is given."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


_NOTHING, _ROOM = pa.scalar("", pa.large_string()), pa.scalar(" ", pa.large_string())


class ByteTokenizer:
    """Every byte of the UTF-8 text is a token; bos is 256, eos 257, pad 258."""

    vocab_size = 259
    bos = 256
    eos = 257
    pad = 258
    chat_template = None
    fingerprint = hashlib.blake2b(b"bytes/256/257/258", digest_size=16).hexdigest()
    special_texts: Mapping[str, str] = {}

    @property
    def spelled_out(self) -> Tokenizer:
        """Itself: no text is a special token."""
        return self

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The bytes of each text."""
        return [list(text.encode()) for text in texts]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The bytes of each text, and the character that each belongs to."""
        encoded = []
        for text in texts:
            ids = np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)
            character = np.cumsum((ids & 0xC0) != 0x80) - 1
            encoded.append((ids, np.stack([character, character + 1], axis=1)))
        return encoded

    def decode(self, ids: Sequence[int], *, with_special: bool = False) -> str:
        """The text of these bytes; ids above 255 are left out, also if `with_special`."""
        return bytes(number for number in map(int, ids) if number < 256).decode(errors="replace")

    def documents(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of each text between bos and eos, without a loop over tokens."""
        # Arrow makes room for bos and eos faster than numpy could insert them.
        offsets, data = _buffers(pc.binary_join_element_wise(_NOTHING, texts, _NOTHING, _ROOM))
        tokens = data.astype(np.int32)
        tokens[offsets[:-1]] = self.bos
        tokens[offsets[1:] - 1] = self.eos
        return tokens, np.diff(offsets)


def _buffers(texts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Offsets int64 [texts + 1] from 0, and the bytes they point into, of a large_string array; no copy."""
    if not len(texts):
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    assert texts.type == pa.large_string(), texts.type
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if data_buffer is None or offsets[-1] == offsets[0]:
        return offsets - offsets[0], np.empty(0, dtype=np.uint8)
    return offsets - offsets[0], np.frombuffer(data_buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]
