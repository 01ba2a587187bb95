"""Converts vocabularies of tiktoken to tokenizer.json.

Such a file has a line for each token, its bytes in base64 and its rank. It has neither the pattern that divides a text
into words nor the special tokens: those of the encodings that OpenAI publishes are known by the file's name
(https://github.com/openai/tiktoken/blob/main/tiktoken_ext/openai_public.py), others come from the
`added_tokens_decoder` of a tokenizer_config.json beside it.
"""

import base64
import binascii
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.values.errors import ConfigurationError

_LINE = re.compile(rb"[A-Za-z0-9+/]+=* [0-9]+\r?\n")
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = "|".join(
    [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
"""Also of Llama 3 (https://github.com/meta-llama/llama3/blob/main/llama/tokenizer.py)."""
_O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
_KNOWN: Mapping[str, tuple[str, Mapping[int, str]]] = {
    "r50k_base": (_GPT2, {50256: "<|endoftext|>"}),
    "p50k_base": (_GPT2, {50256: "<|endoftext|>"}),
    "cl100k_base": (
        _CL100K,
        {
            100257: "<|endoftext|>",
            100258: "<|fim_prefix|>",
            100259: "<|fim_middle|>",
            100260: "<|fim_suffix|>",
            100276: "<|endofprompt|>",
        },
    ),
    "o200k_base": (_O200K, {199999: "<|endoftext|>", 200018: "<|endofprompt|>"}),
}
"""By the name of the file: pattern, special tokens."""


def is_tiktoken(definition: bytes) -> bool:
    """Whether the content of a file begins like a tiktoken vocabulary."""
    return _LINE.match(definition) is not None


def tokenizer_json(definition: bytes, settings: Mapping[str, Any], *, file: str, problem: str) -> bytes:
    """The same vocabulary as a tokenizer.json, which the `tokenizers` library reads.

    Args:
        definition: content of the file.
        settings: of the tokenizer_config.json beside it; empty if there is none.
        file: its name.
        problem: the beginning of messages: the field and its value.

    Raises:
        ConfigurationError: it cannot be read, or its special tokens are unknown.
    """
    pattern, special = _KNOWN.get(file.partition(".")[0], (_CL100K, {}))
    special = _named(settings) or special
    if not special:
        raise ConfigurationError(
            f"{problem} is a vocabulary of tiktoken, which holds no special tokens; put its "
            "tokenizer_config.json beside it, with added_tokens_decoder, or use the tokenizer.json of the model"
        )
    ranks = _ranks(definition, problem)
    spelled = {token: "".join(map(_CHARACTERS.__getitem__, token)) for token in ranks}
    merges = [[spelled[part] for part in _parts(ranks, token)] for token in sorted(ranks, key=ranks.__getitem__)]
    vocabulary = {spelled[token]: rank for token, rank in ranks.items()} | {text: at for at, text in special.items()}
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    words = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    marks = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [{"id": at, "content": text, **marks} for at, text in sorted(special.items())],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [words, by_bytes]},
            "decoder": by_bytes,
            "model": {
                "type": "BPE",
                # A word that is a token stays one token, whatever its parts would be merged to.
                "ignore_merges": True,
                "vocab": vocabulary,
                "merges": [pair for pair in merges if len(pair) == 2],
            },
        }
    ).encode()


def _named(settings: Mapping[str, Any]) -> dict[int, str]:
    added = settings.get("added_tokens_decoder") or {}
    return {int(at): str(token["content"]) for at, token in added.items() if token.get("special", True)}


def _ranks(definition: bytes, problem: str) -> dict[bytes, int]:
    try:
        pairs = (line.split() for line in definition.splitlines() if line)
        return {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except (ValueError, binascii.Error) as error:
        raise ConfigurationError(f"{problem} is not a vocabulary of tiktoken: {error}") from error


def _parts(ranks: Mapping[bytes, int], token: bytes) -> list[bytes]:
    """The parts that a token was merged from: its bytes, merged as long as a merge has a lower rank than the token."""
    parts = [token[at : at + 1] for at in range(len(token))]
    limit = ranks[token]
    while len(parts) > 2:
        found = [ranks.get(left + right, limit) for left, right in itertools.pairwise(parts)]
        best = min(found)
        if best >= limit:
            break
        at = found.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _characters() -> dict[int, str]:
    """A printable character for each byte, as in byte-level BPE since GPT-2."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + at) for at, byte in enumerate(others)}


_CHARACTERS = _characters()
