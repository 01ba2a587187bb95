"""Tokenizers of Hugging Face: tokenizer.json."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers

from tpujob_trainer.data.text.chat import ChatTemplate
from tpujob_trainer.data.text.document_marks import between_marks
from tpujob_trainer.data.text.tokenizer import FIELD, Tokenizer, fingerprint
from tpujob_trainer.errors import ConfigurationError

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
