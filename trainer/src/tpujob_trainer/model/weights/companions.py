"""The small files beside a model's weights: config.json, generation settings, tokenizer and chat template.

An export copies all but config.json byte for byte, so that a model loaded from it generates and stops as its source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.sources.files import DataRoot, explained, open_root
from tpujob_trainer.data.text.tokenizer_files import load_tokenizer
from tpujob_trainer.model.weights.known_keys import EMBEDDING, OUTPUT
from tpujob_trainer.model.weights.safetensors import SafetensorsFolder
from tpujob_trainer.storage.remote import content_of, reach, request
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.json_object import json_object, kept_object

CONFIG = "config.json"
FROM = "spec.trainer.model.from"
TOKENIZER = "spec.trainer.data.tokenizer"
GENERATION = "generation_config.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "tekken.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
)


@dataclass(frozen=True)
class OtherTensors:
    """The tensors in a source's files that are not its decoder's."""

    folder: SafetensorsFolder
    prefix: str
    """Prefix of the names of the decoder's parts."""
    output: str
    """Name of its output projection, if it has one."""
    names: tuple[str, ...]


@dataclass(frozen=True)
class Companions:
    """The files that are written beside exported weights."""

    config: Mapping[str, Any] | None = None
    """config.json of the source; None: the model was fresh."""
    ids: Mapping[str, int | None] = field(default_factory=dict)
    """For a fresh model: the tokens that begin and end a document."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """By name."""
    others: OtherTensors | None = None
    """For a model with images; None: all of its tensors are the decoder's."""


def read_companions(weights_from: str | None, data: DataConfig) -> Companions:
    """The files of a model and of the tokenizer it was trained with; those of the tokenizer take precedence.

    Args:
        weights_from: folder of the model; None: there is none.
        data: names the tokenizer.

    Raises:
        NotFoundError: a folder does not exist, or cannot be read.
        ConfigurationError: config.json is not JSON.
    """
    of_tokenizer = {} if data.tokenizer in (None, "bytes", weights_from) else _of_tokenizer(str(data.tokenizer))
    if weights_from is None:
        tokenizer = load_tokenizer(data)
        return Companions(ids={"bos_token_id": tokenizer.bos, "eos_token_id": tokenizer.eos}, files=of_tokenizer)
    of_model = _read(open_root(weights_from), (GENERATION, *TOKENIZER_FILES), FROM)
    config = read_config(weights_from)
    others = _others(weights_from) if "text_config" in config else None
    return Companions(config=config, files=of_model | of_tokenizer, others=others)


def _others(path: str) -> OtherTensors:
    folder = SafetensorsFolder(open_root(path), FROM)
    prefix = folder.prefix(EMBEDDING)
    names = (name for name in folder.tensors if not name.startswith(prefix) and not name.endswith(OUTPUT))
    return OtherTensors(folder, prefix, folder.named(OUTPUT), tuple(names))


def read_config(path: str) -> dict[str, Any]:
    """The config.json in a folder: local, or a URL (gs://, hf://).

    Raises:
        NotFoundError: there is none, or it cannot be read.
        ConfigurationError: it is not JSON.
    """
    with explained(path, FROM):
        reach(path)
        root = open_root(path)
        content = content_of(root.filesystem, root.locate(CONFIG))
        if content is None:
            raise FileNotFoundError(root.locate(CONFIG))
    try:
        return json_object(content)
    except ValueError as error:
        raise ConfigurationError(
            f"{FROM}: {path}/{CONFIG} is not JSON of a model: {error}; name the folder of a model"
        ) from error


def _of_tokenizer(path: str) -> dict[str, bytes]:
    """The files in the tokenizer's folder; none if it is a file whose name transformers does not know."""
    root = open_root(path)
    with explained(path, TOKENIZER):
        reach(path)
        is_folder = request(path, lambda: root.filesystem.isdir(root.folder))
    folder, _, name = path.rstrip("/").rpartition("/")
    if not is_folder and name not in TOKENIZER_FILES:
        return {}
    return _read(root if is_folder else open_root(folder or "."), TOKENIZER_FILES, TOKENIZER)


def _read(root: DataRoot, names: tuple[str, ...], setting: str) -> dict[str, bytes]:
    with explained(root.url, setting):
        reach(root.url)
        found = {name: content_of(root.filesystem, root.locate(name)) for name in names}
    return {name: content for name, content in found.items() if content is not None}


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
