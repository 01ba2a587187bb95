"""Text to token ids and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Protocol

import fsspec
import fsspec.core
import numpy as np
import pyarrow as pa
import tokenizers

from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.files import explained
from tpujob_trainer.errors import ConfigurationError

FIELD = "spec.trainer.data.tokenizer"

_BEGINNINGS = ("<|begin_of_text|>", "<s>", "<bos>", "[BOS]")
_ENDS = ("<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>", "[EOS]")


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

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without the tokens that begin and end a document."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids; special tokens and bytes that are no UTF-8 leave no trace or U+FFFD."""

    def documents(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Whole documents: int32 ids one after the other, and int64 tokens of each [texts].

        Args:
            texts: Arrow array of large_string without nulls.
        """


class ByteTokenizer:
    """Every byte of the UTF-8 text is a token; then bos 256, eos 257, pad 258."""

    vocab_size = 259
    bos = 256
    eos = 257
    pad = 258
    fingerprint = hashlib.blake2b(b"bytes/256/257/258", digest_size=16).hexdigest()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The bytes of each text."""
        return [list(text.encode()) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these bytes; ids above 255 are left out."""
        return bytes(number for number in map(int, ids) if number < 256).decode(errors="replace")

    def documents(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of each text between bos and eos; nothing is done token by token."""
        offsets, data = _buffers(texts)
        lengths = np.diff(offsets) + 2
        ends = np.cumsum(lengths)
        tokens = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int32)
        is_text = np.ones(len(tokens), dtype=bool)
        is_text[ends - 1] = False
        is_text[ends - lengths] = False
        tokens[is_text] = data
        tokens[ends - lengths] = self.bos
        tokens[ends - 1] = self.eos
        return tokens, lengths


class HuggingFaceTokenizer:
    """A tokenizer.json as the `tokenizers` library reads it."""

    def __init__(self, definition: bytes, special: dict[str, str], name: str) -> None:
        """Read a definition.

        Args:
            definition: content of tokenizer.json.
            special: `bos_token` and `eos_token` where the model's author has named them.
            name: where it came from, for messages.

        Raises:
            ConfigurationError: it cannot be read, or has no token that ends a document.
        """
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(definition.decode())
        except Exception as error:  # the library raises Exception itself
            raise ConfigurationError(f"{FIELD}: {name!r} is not a tokenizer.json: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1
        self.bos = _special(vocabulary, special.get("bos_token"), _BEGINNINGS)
        eos = _special(vocabulary, special.get("eos_token"), _ENDS)
        if eos is None:
            raise ConfigurationError(
                f"{FIELD}: {name!r} has no token that ends a document; name one as eos_token in a "
                f"tokenizer_config.json beside it, or call it one of {', '.join(_ENDS)}"
            )
        self.eos: int = eos
        digest = hashlib.blake2b(definition, digest_size=16)
        digest.update(f"{self.bos}/{self.eos}".encode())
        self.fingerprint = digest.hexdigest()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, on all cores."""
        return [item.ids for item in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids, without special tokens."""
        return str(self._tokenizer.decode([int(number) for number in ids], skip_special_tokens=True))

    def documents(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ids of each text between bos (where there is one) and eos."""
        before = [] if self.bos is None else [self.bos]
        encoded = [np.array([*before, *ids, self.eos], dtype=np.int32) for ids in self.encode(texts.to_pylist())]
        lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
        return (np.concatenate(encoded) if encoded else np.empty(0, dtype=np.int32)), lengths


def load_tokenizer(config: DataConfig) -> Tokenizer:
    """The tokenizer that `config.tokenizer` names.

    Raises:
        NotFoundError: the file is not there, or may not be read.
        ConfigurationError: it is not a tokenizer.json.
    """
    if config.tokenizer == "bytes":
        return ByteTokenizer()
    path = config.tokenizer
    with explained(path, FIELD):
        filesystem, location = fsspec.core.url_to_fs(path)
        if filesystem.isdir(location):
            location = f"{location.rstrip('/')}/tokenizer.json"
        definition = filesystem.cat_file(location)
        beside = f"{location.rsplit('/', 1)[0]}/tokenizer_config.json"
        settings = json.loads(filesystem.cat_file(beside)) if filesystem.exists(beside) else {}
    return HuggingFaceTokenizer(definition, _named_tokens(settings), path)


def _named_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """`bos_token` and `eos_token` of a tokenizer_config.json: text, or an object with the text as `content`."""
    named = {}
    for key in ("bos_token", "eos_token"):
        value = settings.get(key)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            named[key] = value
    return named


def _special(vocabulary: dict[str, int], named: str | None, usual: Sequence[str]) -> int | None:
    candidates = (named,) if named is not None else usual
    return next((vocabulary[token] for token in candidates if token in vocabulary), None)


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
