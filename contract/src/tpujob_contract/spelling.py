"""Suggestions for what was probably meant by an unknown name, or by a text instead of a number."""

import difflib
import re
from typing import Any, Iterable, Optional

LEAST_LIKENESS = 0.6
"""As `difflib.SequenceMatcher.ratio` measures it."""


def nearest_name(given: str, known: Iterable[str]) -> Optional[str]:
    """The known name closest to a given one, ignoring case, hyphens and underscores; None: none is close."""
    by_normalized = {normalized(name): name for name in known}
    found = difflib.get_close_matches(normalized(given), by_normalized, n=1, cutoff=LEAST_LIKENESS)
    return by_normalized[found[0]] if found else None


_SCALES = {
    "k": "e3",
    "kb": "e3",
    "mb": "e6",
    "gb": "e9",
    "tb": "e12",
    "m": "e6",
    "b": "e9",
    "g": "e9",
    "t": "e12",
    "thousand": "e3",
    "million": "e6",
    "billion": "e9",
    "trillion": "e12",
}
_DIGITS = r"[0-9][0-9_,]*(?:\.[0-9]+)?"
_PLAIN = re.compile(rf"{_DIGITS}(?:[eE][+-]?[0-9]+)?")
_SCALED = re.compile(rf"({_DIGITS})\s*({'|'.join(_SCALES)})", re.IGNORECASE)


def number_meant(value: Any) -> str:
    """The end of a message: what to write instead of a text such as "2" or 20B; empty if the value is not a text."""
    if not isinstance(value, str):
        return ""
    text = value.strip()
    scaled = _SCALED.fullmatch(text)
    if scaled:
        return f"; write {_without_separators(scaled[1])}{_SCALES[scaled[2].lower()]}"
    if _PLAIN.fullmatch(text):
        return f"; write {_without_separators(text)}, without quotes"
    return "; write it in digits"


def _without_separators(digits: str) -> str:
    return digits.replace(",", "").replace("_", "")


_SHORT = {
    "lr": "learningrate",
    "bs": "batchsize",
    "wd": "weightdecay",
    "tp": "tensor",
    "ep": "expert",
    "cp": "context",
    "sp": "context",
    "qproj": "query",
    "kproj": "key",
    "vproj": "value",
    "oproj": "out",
    "gateproj": "gate",
    "upproj": "up",
    "downproj": "down",
    "bf16": "bfloat16",
    "fp16": "bfloat16",
    "fp32": "float32",
}
"""Abbreviations and alternative names: of settings, PEFT's modules, mesh axes and data types."""


def normalized(name: str) -> str:
    """A name in lower case without hyphens and underscores; an alternative name becomes the one used here."""
    letters = name.replace("_", "").replace("-", "").lower()
    return _SHORT.get(letters, letters)
