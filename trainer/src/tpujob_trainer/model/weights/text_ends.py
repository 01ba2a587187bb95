"""The tokens that end a text of a model when it generates, as in transformers."""

from __future__ import annotations

from typing import Any

from tpujob_trainer.data.sources.files import explained, open_root
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.weights.companions import FROM, GENERATION, read_config
from tpujob_trainer.parsing.json_object import kept_object
from tpujob_trainer.storage.remote import content_of, reach

_KEY = "eos_token_id"


def text_ends(eos: int, weights_from: str | None) -> tuple[int, ...]:
    """The tokenizer's end of text, and those in the model's generation_config.json, or else its config.json.

    Args:
        eos: of the tokenizer.
        weights_from: folder of the model; local, or a URL (gs://, hf://). None: there is none.

    Raises:
        NotFoundError: it does not exist, or cannot be read.
        ConfigurationError: a file is damaged, or its end of text is not a token.
    """
    if weights_from is None:
        return (eos,)
    with explained(weights_from, FROM):
        reach(weights_from)
        root = open_root(weights_from)
        content = content_of(root.filesystem, root.locate(GENERATION))
    where = f"{FROM}: {weights_from}/{GENERATION}"
    if content is not None:
        return _with(eos, kept_object(content, where, "copy it anew").get(_KEY), where)
    config = read_config(weights_from)
    inner = config.get("text_config")
    given = config.get(_KEY, inner.get(_KEY) if isinstance(inner, dict) else None)
    return _with(eos, given, f"{FROM}: {weights_from}/config.json")


def _with(eos: int, given: Any, where: str) -> tuple[int, ...]:
    listed = given if isinstance(given, list) else [] if given is None else [given]
    for number in listed:
        if type(number) is not int or number < 0:
            said = str(given)[:80]
            raise ConfigurationError(f"{where}: {_KEY} is {said}, not the number of a token, or a list of them")
    return tuple(dict.fromkeys((eos, *listed)))
