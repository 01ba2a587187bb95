"""Text to token ids and back."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import fsspec
import fsspec.core
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sentencepiece
import tokenizers

from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.sources.files import explained
from tpujob_trainer.data.text.chat import ChatTemplate
from tpujob_trainer.data.text.word_memo import buffers, make_memo
from tpujob_trainer.errors import ConfigurationError

FIELD = "spec.trainer.data.tokenizer"

_NOTHING, _ROOM = pa.scalar("", pa.large_string()), pa.scalar(" ", pa.large_string())

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

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids; special tokens and bytes that are no UTF-8 leave no trace or U+FFFD."""

    def documents(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Whole documents: int32 ids one after the other, and int64 tokens of each [texts].

        A text that has a special token in it has none: it would end or begin a document in the middle of one.

        Args:
            texts: Arrow array of large_string without nulls.
        """


class ByteTokenizer:
    """Every byte of the UTF-8 text is a token; then bos 256, eos 257, pad 258."""

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

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these bytes; ids above 255 are left out."""
        return bytes(number for number in map(int, ids) if number < 256).decode(errors="replace")

    def documents(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of each text between bos and eos; nothing is done token by token."""
        # Arrow makes room for the two faster than numpy could put the bytes between them.
        offsets, data = buffers(pc.binary_join_element_wise(_NOTHING, texts, _NOTHING, _ROOM))
        tokens = data.astype(np.int32)
        tokens[offsets[:-1]] = self.bos
        tokens[offsets[1:] - 1] = self.eos
        return tokens, np.diff(offsets)


class HuggingFaceTokenizer:
    """A tokenizer.json as the `tokenizers` library reads it."""

    def __init__(
        self,
        definition: bytes,
        special: dict[str, str],
        name: str,
        *,
        chat_template: str | None = None,
        special_as_text: bool = False,
    ) -> None:
        """Read a definition.

        Args:
            definition: content of tokenizer.json.
            special: `bos_token` and `eos_token` where the model's author has named them.
            name: where it came from, for messages.
            chat_template: Jinja, where there is one.
            special_as_text: take special tokens in a text for characters like others.

        Raises:
            ConfigurationError: it cannot be read, or has no token that ends a document.
        """
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(definition.decode())
        except Exception as error:  # the library raises Exception itself
            raise ConfigurationError(f"{FIELD}: {name!r} is not a tokenizer.json: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = special_as_text
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
        self.chat_template: ChatTemplate | None = None
        if chat_template is not None:
            self.chat_template = ChatTemplate(chat_template, special, name)
        self.fingerprint = _fingerprint(definition, self.bos, self.eos, chat_template)
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = np.array(sorted(number for number, token in added.items() if token.special), dtype=np.int32)
        self._memo = make_memo(self._tokenizer, definition)
        self.special_texts: Mapping[str, str] = {
            **{token.content: token.content for token in added.values() if token.special},
            "eos_token": self._tokenizer.id_to_token(self.eos) or "",
            **({} if self.bos is None else {"bos_token": self._tokenizer.id_to_token(self.bos) or ""}),
            **special,
        }
        self._given = (definition, special, name)

    @functools.cached_property
    def spelled_out(self) -> Tokenizer:
        """The same tokenizer, for which special tokens in a text are characters like others."""
        return HuggingFaceTokenizer(*self._given, special_as_text=True)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, on all cores."""
        return [item.ids for item in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The ids of each text and the characters that they stand for, on all cores."""
        return [
            (np.array(item.ids, dtype=np.int32), np.array(item.offsets, dtype=np.int64).reshape(-1, 2))
            for item in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids, without special tokens."""
        return str(self._tokenizer.decode([int(number) for number in ids], skip_special_tokens=True))

    def documents(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ids of each text between bos (where there is one) and eos."""
        if self._memo is None:
            return between_marks(self.encode(texts.to_pylist()), self.bos, self.eos, self._special)
        return mark(*self._memo.encode(texts), self.bos, self.eos, self._special)


class SentencePieceTokenizer:
    """A SentencePiece model (.model), as Llama 2, Gemma and T5 have."""

    def __init__(
        self,
        definition: bytes,
        special: dict[str, str],
        name: str,
        *,
        chat_template: str | None = None,
        special_as_text: bool = False,
    ) -> None:
        """Read a model; the arguments are those of `HuggingFaceTokenizer`.

        Raises:
            ConfigurationError: it cannot be read, or has no token that ends a document.
        """
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            self._model.LoadFromSerializedProto(definition)
        except RuntimeError as error:
            raise ConfigurationError(f"{FIELD}: {name!r} is not a SentencePiece model: {error}") from error
        self.vocab_size = int(self._model.vocab_size())
        pieces = {self._model.id_to_piece(number): number for number in range(self.vocab_size)}
        self._by_name = {
            piece: number
            for piece, number in pieces.items()
            if self._model.is_control(number) or piece in special.values()
        }
        self.bos = self._named(special.get("bos_token"), self._model.bos_id())
        eos = self._named(special.get("eos_token"), self._model.eos_id())
        if eos is None:
            raise ConfigurationError(f"{FIELD}: {name!r} has no token that ends a document; train it with an eos_id")
        self.eos: int = eos
        self.chat_template: ChatTemplate | None = None
        if chat_template is not None:
            self.chat_template = ChatTemplate(chat_template, special, name)
        self.fingerprint = _fingerprint(definition, self.bos, self.eos, chat_template)
        marks = [re.escape(piece) for piece in sorted(self._by_name, key=len, reverse=True)]
        self._marks = re.compile(f"({'|'.join(marks)})") if marks and not special_as_text else None
        self._given = (definition, special, name)
        self.special_texts: Mapping[str, str] = {
            **{piece: piece for piece in self._by_name},
            "eos_token": self._model.id_to_piece(self.eos),
            **({} if self.bos is None else {"bos_token": self._model.id_to_piece(self.bos)}),
            **special,
        }

    @functools.cached_property
    def spelled_out(self) -> Tokenizer:
        """The same tokenizer, for which special tokens in a text are characters like others."""
        return SentencePieceTokenizer(*self._given, special_as_text=True)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        encoded: list[list[int]] = self._model.encode(list(texts), num_threads=1)
        if self._marks is not None:
            for at, text in enumerate(texts):
                if self._marks.search(text):
                    encoded[at] = self._with_marks(text)
        return encoded

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The ids of each text, and the characters that they stand for."""
        return [self._with_offsets(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids, without special tokens."""
        special = set(self._by_name.values())
        return str(self._model.decode([int(number) for number in ids if int(number) not in special]))

    def documents(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ids of each text between bos (where there is one) and eos."""
        special = np.array(sorted(self._by_name.values()), dtype=np.int32)
        return between_marks(self.encode(texts.to_pylist()), self.bos, self.eos, special)

    def _with_offsets(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        at = 0
        for piece in self._marks.split(text) if self._marks is not None else [text]:
            if piece in self._by_name:
                ids.append(self._by_name[piece])
                offsets.append((at, at + len(piece)))
            elif piece:
                found = self._model.encode(piece, return_type="offset_mapping")
                ids += found["ids"]
                offsets += [(at + begin, at + end) for begin, end in found["offsets"]]
            at += len(piece)
        return np.array(ids, dtype=np.int32), np.array(offsets, dtype=np.int64).reshape(-1, 2)

    def _with_marks(self, text: str) -> list[int]:
        assert self._marks is not None
        ids: list[int] = []
        for piece in self._marks.split(text):
            if piece:
                ids += [self._by_name[piece]] if piece in self._by_name else self._model.encode(piece)
        return ids

    def _named(self, piece: str | None, otherwise: int) -> int | None:
        if piece is not None and piece in self._by_name:
            return self._by_name[piece]
        return otherwise if otherwise >= 0 else None


def load_tokenizer(config: DataConfig) -> Tokenizer:
    """The tokenizer that `config.tokenizer` names; of bytes where it names none.

    Raises:
        NotFoundError: the file is not there, or may not be read.
        ConfigurationError: it is not a tokenizer.
    """
    path = config.tokenizer or "bytes"
    if path == "bytes":
        return ByteTokenizer()
    with explained(path, FIELD):
        filesystem, location = fsspec.core.url_to_fs(path)
        if filesystem.isdir(location):
            names = ("tokenizer.json", "tokenizer.model")
            folder = location.rstrip("/")
            location = next((f"{folder}/{name}" for name in names if filesystem.exists(f"{folder}/{name}")), location)
        definition = filesystem.cat_file(location)
        folder = location.rsplit("/", 1)[0]
        settings = json.loads(_content(filesystem, f"{folder}/tokenizer_config.json") or b"{}")
        template = (_content(filesystem, f"{folder}/chat_template.jinja") or b"").decode() or _template(settings)
    if location.endswith(".model"):
        return SentencePieceTokenizer(definition, _named_tokens(settings), path, chat_template=template)
    return HuggingFaceTokenizer(definition, _named_tokens(settings), path, chat_template=template)


def between_marks(
    encoded: Sequence[Sequence[int]], bos: int | None, eos: int, special: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`mark` for the ids of each text."""
    counts = np.array([len(ids) for ids in encoded], dtype=np.int64)
    ids = np.fromiter(itertools.chain.from_iterable(encoded), dtype=np.int32, count=int(counts.sum()))
    return mark(ids, counts, bos, eos, special)


def mark(
    ids: np.ndarray, counts: np.ndarray, bos: int | None, eos: int, special: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Documents of these ids: all tokens one after the other, and how many each has; none where one is special.

    Args:
        ids: int32, of all texts.
        counts: int64, how many each text has.
        bos: begins each document, if not None.
        eos: ends each document.
        special: int32, ids that a text may not have, ascending.
    """
    if not len(counts):
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    before = 0 if bos is None else 1
    lengths = counts + before + 1
    ends = np.cumsum(lengths)
    tokens = np.empty(int(ends[-1]), dtype=np.int32)
    is_text = np.ones(len(tokens), dtype=bool)
    is_text[ends - 1] = False
    if before:
        is_text[ends - lengths] = False
    tokens[is_text] = ids
    tokens[ends - 1] = eos
    if bos is not None:
        tokens[ends - lengths] = bos
    is_special = _contains(special, ids)
    if is_special.any():
        refused = np.zeros(len(counts), dtype=bool)
        refused[np.searchsorted(np.cumsum(counts), np.flatnonzero(is_special), side="right")] = True
        tokens = tokens[~np.repeat(refused, lengths)]
        lengths = np.where(refused, 0, lengths)
    return tokens, lengths


def _contains(some: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Whether each number is one of these, int32 and ascending."""
    if not len(some):
        return np.zeros(len(numbers), dtype=bool)
    is_one = np.zeros(int(some[-1]) + 2, dtype=bool)
    is_one[some] = True
    return is_one[np.minimum(numbers, len(is_one) - 1)]


def _content(filesystem: Any, location: str) -> bytes | None:
    return filesystem.cat_file(location) if filesystem.exists(location) else None


def _template(settings: dict[str, Any]) -> str | None:
    """`chat_template` of a tokenizer_config.json: text, or a list of named ones of which `default` is taken."""
    given = settings.get("chat_template")
    if isinstance(given, list):
        given = next((item.get("template") for item in given if item.get("name") == "default"), None)
    return given if isinstance(given, str) else None


def _named_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """`bos_token` and the like of a tokenizer_config.json: text, or an object with the text as `content`."""
    named = {}
    for key in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = settings.get(key)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            named[key] = value
    return named


def _fingerprint(definition: bytes, bos: int | None, eos: int, chat_template: str | None) -> str:
    """Of all that the ids of a document depend on."""
    digest = hashlib.blake2b(definition, digest_size=16)
    digest.update(f"{bos}/{eos}".encode())
    digest.update((chat_template or "").encode())
    return digest.hexdigest()


def _special(vocabulary: dict[str, int], named: str | None, usual: Sequence[str]) -> int | None:
    candidates = (named,) if named is not None else usual
    return next((vocabulary[token] for token in candidates if token in vocabulary), None)
