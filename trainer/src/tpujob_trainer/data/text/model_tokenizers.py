"""Tokenizers of models: tokenizer.json of Hugging Face, tokenizer.model of SentencePiece."""

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece
import tokenizers

from tpujob_trainer.data.text.chat import ChatTemplate
from tpujob_trainer.data.text.documents import between_marks
from tpujob_trainer.data.text.tokenizer import FIELD, Tokenizer, fingerprint
from tpujob_trainer.values.errors import ConfigurationError

_BEGINNINGS = ("<|begin_of_text|>", "<s>", "<bos>", "[BOS]")
_ENDS = ("<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>", "[EOS]")


class HuggingFaceTokenizer:
    """A tokenizer.json as the `tokenizers` library reads it."""

    def __init__(
        self,
        definition: bytes,
        special: dict[str, str],
        name: str,
        *,
        chat_templates: Mapping[str, str] | None = None,
        special_as_text: bool = False,
    ) -> None:
        """Reads a definition.

        Args:
            definition: content of tokenizer.json.
            special: `bos_token` and `eos_token`, if the model's author has named them.
            name: where it came from, for messages.
            chat_templates: Jinja, by name: default, and perhaps tool_use; None: there is none.
            special_as_text: encode special tokens in a text as ordinary characters.

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
        self.chat_template = ChatTemplate.of(chat_templates or {}, special, name)
        self.fingerprint = fingerprint(definition, self.bos, self.eos, chat_templates or {})
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = np.array(sorted(number for number, token in added.items() if token.special), dtype=np.int32)
        self.special_texts: Mapping[str, str] = {
            **{token.content: token.content for token in added.values() if token.special},
            "eos_token": self._tokenizer.id_to_token(self.eos) or "",
            **({} if self.bos is None else {"bos_token": self._tokenizer.id_to_token(self.bos) or ""}),
            **special,
        }
        self._given = (definition, special, name)

    @functools.cached_property
    def spelled_out(self) -> Tokenizer:
        """The same tokenizer, which encodes special tokens in a text as ordinary characters."""
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

    def decode(self, ids: Sequence[int], *, with_special: bool = False) -> str:
        """The text of these ids."""
        return str(self._tokenizer.decode([int(number) for number in ids], skip_special_tokens=not with_special))

    def documents(self, texts: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ids of each text between bos (where there is one) and eos."""
        return between_marks(self.encode(texts.to_pylist()), self.bos, self.eos, self._special)


def _special(vocabulary: dict[str, int], named: str | None, usual: Sequence[str]) -> int | None:
    candidates = (named,) if named is not None else usual
    return next((vocabulary[token] for token in candidates if token in vocabulary), None)


class SentencePieceTokenizer:
    """A SentencePiece model (.model), as in Llama 2, Gemma and T5."""

    def __init__(
        self,
        definition: bytes,
        special: dict[str, str],
        name: str,
        *,
        chat_templates: Mapping[str, str] | None = None,
        special_as_text: bool = False,
    ) -> None:
        """Reads a model; the arguments are those of `HuggingFaceTokenizer`.

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
        self.chat_template = ChatTemplate.of(chat_templates or {}, special, name)
        self.fingerprint = fingerprint(definition, self.bos, self.eos, chat_templates or {})
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
        """The same tokenizer, which encodes special tokens in a text as ordinary characters."""
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

    def decode(self, ids: Sequence[int], *, with_special: bool = False) -> str:
        """The text of these ids."""
        special = set(self._by_name.values())
        if not with_special:
            return str(self._model.decode([int(number) for number in ids if int(number) not in special]))
        runs = itertools.groupby(map(int, ids), key=special.__contains__)
        return "".join(
            "".join(map(self._model.id_to_piece, run)) if is_special else str(self._model.decode(list(run)))
            for is_special, run in runs
        )

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
