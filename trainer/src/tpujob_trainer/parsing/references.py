"""Python objects that a configuration names as `module:name`: a user's own model, loss or optimizer."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

from tpujob_trainer.errors import ConfigurationError, brief

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
PATTERN = rf"^{_NAME}(\.{_NAME})*:{_NAME}$"
"""Regular expression of a reference, which Python and the API server interpret alike."""
NOT_ONE = "is not module:name; write it as in my_package.model:Decoder"
"""The message about a text that is not a reference."""

WHERE_CODE_COMES_FROM = "submit it with --code, build it into the image, or start where it is"


class MissingModuleError(ConfigurationError):
    """A module that a field names, or one that it imports, is not on this machine; the job may bring it."""


def require_reference(text: str, key: str) -> None:
    """Checks that the text is a reference.

    Raises:
        ValueError: it is not; the message begins with the key.
    """
    if not re.fullmatch(PATTERN, text):
        raise ValueError(f"{key}: {json.dumps(text)} {NOT_ONE}")


def load_reference(text: str, field: str) -> Any:
    """The object that `module:name` names.

    Args:
        text: the reference.
        field: the field with this value, for messages.

    Raises:
        MissingModuleError: the module, or one that it imports, is not on this machine.
        ConfigurationError: the module cannot be imported, has no such name, or the object cannot be called.
    """
    module_name, _, name = text.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module_name.split(".")[0]:
            raise MissingModuleError(
                f"{field}: no module named {error.name!r} is installed or on PYTHONPATH; {WHERE_CODE_COMES_FROM}"
            ) from error
        kind = MissingModuleError if isinstance(error, ModuleNotFoundError) else ConfigurationError
        raise kind(f"{field}: {module_name} cannot be imported: {brief(error)}") from error
    try:
        found = getattr(module, name)
    except AttributeError as error:
        known = ", ".join(sorted(each for each in vars(module) if not each.startswith("_"))[:20])
        raise ConfigurationError(f"{field}: {module_name} has no {name!r}; it has {known}") from error
    if not callable(found):
        raise ConfigurationError(f"{field}: {text} is a {type(found).__name__}, which cannot be called")
    return found


@functools.cache
def source_digest(text: str, field: str) -> str:
    """A digest, 16 hexadecimal digits, of the source of the module that a reference names.

    The source is read once in a process, as the module is.

    Raises:
        ConfigurationError: as `load_reference`, or the module has no source file.
    """
    load_reference(text, field)
    module = importlib.import_module(text.partition(":")[0])
    file = inspect.getsourcefile(module)
    if file is None:
        raise ConfigurationError(f"{field}: {module.__name__} has no source file, by which a change could be noticed")
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=8).hexdigest()
