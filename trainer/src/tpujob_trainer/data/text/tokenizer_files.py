"""Reads the tokenizer that `data.tokenizer` names, of any supported kind."""

import re
from pathlib import Path
from typing import Any

from tpujob_contract import storage_address
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.sources.files import explained
from tpujob_trainer.data.text.model_tokenizers import HuggingFaceTokenizer, SentencePieceTokenizer
from tpujob_trainer.data.text.tiktoken_vocabulary import is_tiktoken, tokenizer_json
from tpujob_trainer.data.text.tokenizer import FIELD, ByteTokenizer, Tokenizer
from tpujob_trainer.storage.filesystems import located
from tpujob_trainer.storage.remote import content_of, reach
from tpujob_trainer.values.errors import NotFoundError
from tpujob_trainer.values.json_object import damaged, kept_object

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
"""Such as gpt2 or Qwen/Qwen2.5-7B; a path that exists counts as a path nevertheless."""
_FILES = (".json", ".model", ".tiktoken")
_SETTINGS, _TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
_TOOL_USE = "additional_chat_templates/tool_use.jinja"


def load_tokenizer(config: DataConfig) -> Tokenizer:
    """The tokenizer that `config.tokenizer` names; that of bytes if it names none.

    Raises:
        NotFoundError: the file is not there, or may not be read.
        StorageFailedError: its storage has not answered for too long.
        ConfigurationError: it is not a tokenizer.
    """
    path = config.tokenizer or "bytes"
    if path == "bytes":
        return ByteTokenizer()
    if _HUB_NAME.fullmatch(path) and not path.endswith(_FILES) and not Path(path).exists():
        raise NotFoundError(
            f"{FIELD}: {path!r} is no file or folder here; a model of the Hugging Face hub is hf://{path}, otherwise "
            "name a tokenizer.json, its folder, or a gs:// address of either"
        )
    with explained(path, FIELD):
        address, query = storage_address.without_query(path)
        reach(address)
        filesystem, named = located(address)
        location, definition = _found(filesystem, named, query)
        folder = location.rpartition("/")[0]
        settings = kept_object(
            content_of(filesystem, f"{folder}/{_SETTINGS}") or b"{}", f"{FIELD}: {folder}/{_SETTINGS}", "copy it anew"
        )
        files = {"default": _TEMPLATE, "tool_use": _TOOL_USE}
        beside = {name: _text(content_of(filesystem, f"{folder}/{file}"), folder, file) for name, file in files.items()}
        templates = {name: text for name, text in beside.items() if text} or _templates(settings)
    if is_tiktoken(definition):
        definition = tokenizer_json(
            definition, settings, file=location.rsplit("/", 1)[-1], problem=f"{FIELD}: {path!r}"
        )
    elif location.endswith(".model"):
        return SentencePieceTokenizer(definition, _named_tokens(settings), path, chat_templates=templates)
    return HuggingFaceTokenizer(definition, _named_tokens(settings), path, chat_templates=templates)


def _found(filesystem: Any, named: str, query: str) -> tuple[str, bytes]:
    """The path and the content of the tokenizer: the named file, or the tokenizer file in the named folder."""
    folder = named.rstrip("/")
    in_folder = [f"{folder}/tokenizer.json", f"{folder}/tokenizer.model"]
    candidates = [named] if query else [named, *in_folder] if named.endswith(_FILES) else [*in_folder, named]
    for candidate in candidates:
        definition = content_of(filesystem, candidate, query)
        if definition is not None:
            return candidate, definition
    raise FileNotFoundError(named)


def _text(content: bytes | None, folder: str, name: str) -> str:
    try:
        return (content or b"").decode()
    except UnicodeDecodeError as error:
        raise damaged(f"{FIELD}: {folder}/{name}", error, "copy it anew") from error


def _templates(settings: dict[str, Any]) -> dict[str, str]:
    """`chat_template` of a tokenizer_config.json by name: text, which is the default one, or a list of named ones."""
    given = settings.get("chat_template")
    if not isinstance(given, list):
        given = [{"name": "default", "template": given}]
    named = {item.get("name"): item.get("template") for item in given if isinstance(item, dict)}
    return {name: text for name, text in named.items() if isinstance(name, str) and isinstance(text, str)}


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
