"""Reads JSON objects from files that may be overwritten, cut off, or forged."""

import json
from typing import Any

from tpujob_trainer.values.errors import ConfigurationError


def json_object(content: bytes | str) -> dict[str, Any]:
    """The object in a JSON text.

    Raises:
        ValueError: it is not UTF-8, not JSON, not an object, nested too deeply, or has half of a surrogate pair in it.
    """
    try:
        found = json.loads(content if isinstance(content, str) else content.decode())
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("half of a character, an escape such as \\ud83d") from None
    if not isinstance(found, dict):
        raise ValueError("JSON, but no object")  # noqa: TRY004 - of a text, not of an argument
    return found


def kept_object(content: bytes | str, where: str, remedy: str) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        content: Of the file.
        where: The field that names the file, and the file, for the message.
        remedy: What to do when it is damaged.

    Raises:
        ConfigurationError: it is damaged.
    """
    try:
        return json_object(content)
    except ValueError as error:
        raise damaged(where, error, remedy) from error


def damaged(where: str, error: object, remedy: str) -> ConfigurationError:
    """The error about a file whose content is damaged."""
    return ConfigurationError(f"{where} is damaged ({' '.join(str(error).split())[:120]}); {remedy}")
