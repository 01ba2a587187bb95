"""Changes fields in a job's file, and keeps its comments and order."""

import io
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tpujob.job.job_file import read_document
from tpujob.job.yaml_text import NotYaml, read_yaml, text_of
from tpujob.output.errors import CommandError
from tpujob_contract.whole_file import replaced

ENDLESS_LINE = 2**16
_FIELD_BELOW = re.compile(r"^spec:[^\n]*\n(?: *(?:#[^\n]*)?\n)*( +)\S", re.MULTILINE)
"""The indentation of the fields of spec."""
_ITEM_BELOW = re.compile(r"^( *)[\w-]+:[^\n]*\n( *)- ", re.MULTILINE)
"""The indentation of a list, and of its items."""


def write_trainer_fields(path: Path, fields: Mapping[str, Any]) -> None:
    """Sets fields below spec.trainer in a file.

    Args:
        path: The file of a job that was read and is valid.
        fields: By their paths with dots, such as mesh.fsdp; None removes a field.

    Raises:
        CommandError: the file cannot be written, or has a form that cannot be edited automatically.
    """
    wanted = read_document(path)
    _apply(wanted["spec"]["trainer"], fields)
    text = text_of(path)
    changed = _as_json(wanted) if _is_json(text) else _edited(text, fields)
    try:
        is_right = [document for document in read_yaml(changed) if document is not None] == [wanted]
    except NotYaml:
        is_right = False
    if not is_right:
        listed = ", ".join(f"{field}: {value}" for field, value in fields.items())
        raise CommandError(f"{path}: is of a form that is not written by itself; set below spec.trainer: {listed}")
    try:
        with replaced(path) as unfinished:
            shutil.copymode(path, unfinished)
            unfinished.write_text(changed, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}; nothing was changed") from error


def _edited(text: str, fields: Mapping[str, Any]) -> str:
    fields_below, items_below = _FIELD_BELOW.search(text), _ITEM_BELOW.search(text)
    of_items = len(items_below[2]) - len(items_below[1]) if items_below else 2
    round_trip = YAML()
    round_trip.preserve_quotes, round_trip.width = True, ENDLESS_LINE
    round_trip.indent(len(fields_below[1]) if fields_below else 2, sequence=of_items + 2, offset=of_items)
    document = round_trip.load(text)
    _apply(document["spec"]["trainer"], fields)
    written = io.StringIO()
    round_trip.dump(document, written)
    return written.getvalue()


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _as_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _apply(block: Any, fields: Mapping[str, Any]) -> None:
    for field, value in fields.items():
        *outer, last = field.split(".")
        inner = block
        for key in outer:
            if inner.get(key) is None:
                inner[key] = {}
            inner = inner[key]
        if value is None:
            inner.pop(last, None)
        else:
            inner[last] = value
