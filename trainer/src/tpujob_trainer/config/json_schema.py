"""The `trainer` block as a JSON schema, for programs that check it without importing the trainer.

`python -m tpujob_trainer.config.json_schema` writes it to `TARGET`; `--check` compares it with the file there.

It uses only keywords of Kubernetes' structural schemas. It has no defaults: the API server would write them into
resources, and after a change, an old default would look like the user's choice. They are in the descriptions.
"""

import argparse
import ast
import dataclasses
import inspect
import json
import logging
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tpujob_contract.field_rules import as_rows
from tpujob_trainer.config.rules import RULES
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.model.config import PRESETS
from tpujob_trainer.values.from_mapping import INT_OR_TEXT, camel_case, split_range, without_none

logger = logging.getLogger(__name__)

TARGET = Path(__file__).parents[4] / "resource/src/tpujob_resource/rules/trainer_schema.json"
"""In a checkout of the repository."""

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def schema(kind: type = TrainerConfig) -> dict[str, Any]:
    """The JSON schema of a configuration dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    notes = field_docstrings(kind)
    properties: dict[str, Any] = {}
    required = []
    for field in dataclasses.fields(kind):
        key = camel_case(field.name)
        properties[key] = _of(hints[field.name]) | {"description": notes[field.name] + _default(field)}
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(key)
    made: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if alternatives := getattr(kind, "one_of", ()):
        made["anyOf"] = [{"required": [key]} for key in alternatives]
    return made | ({"required": required} if required else {})


def document() -> str:
    """The text of trainer_schema.json."""
    whole = schema() | {"x-tpujob-presets": _presets(), "x-tpujob-rules": []}
    # One rule per line.
    rows = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in as_rows(RULES))
    text = json.dumps(whole, indent=2, ensure_ascii=False)
    return text.replace('"x-tpujob-rules": []', f'"x-tpujob-rules": [\n{rows}\n  ]') + "\n"


def _presets() -> dict[str, dict[str, int]]:
    """The numbers of the presets that rules between fields need, by the names of the fields that they replace."""
    return {
        name: {
            "heads": preset.heads,
            "kvHeads": preset.kv_heads or preset.heads,
            "sequenceLength": preset.sequence_length,
            "batchTokens": preset.batch_tokens,
            **({"vocabSize": preset.vocab_size} if preset.vocab_size else {}),
        }
        for name, preset in PRESETS.items()
    }


def field_docstrings(kind: type) -> dict[str, str]:
    """The docstring under each field of a dataclass and of its base classes, on one line.

    Raises:
        ValueError: a field has none.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            found |= _own_docstrings(base)
    return found


def _own_docstrings(kind: type) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, after in zip(definition.body, [*definition.body[1:], ast.Pass()], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            match after:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    found[statement.target.id] = " ".join(text.split()).replace("`", "")
                case _:
                    raise ValueError(f"{kind.__name__}.{statement.target.id} has no docstring under it")
    return found


def _of(hint: Any) -> dict[str, Any]:
    bare, allowed = split_range(without_none(hint))
    bare = without_none(bare)
    if dataclasses.is_dataclass(bare):
        return schema(bare)  # type: ignore[arg-type]
    if bare == INT_OR_TEXT:
        return {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}
    if get_origin(bare) is Mapping:
        return {"type": "object"}
    if get_origin(bare) is tuple:
        return {"type": "array", "items": _of(get_args(bare)[0]), "minItems": 1}
    if get_origin(bare) is Literal:
        return {"type": "string", "enum": list(get_args(bare))}
    made: dict[str, Any] = {"type": _TYPES[bare]}
    for word, bound in (("minimum", allowed.at_least), ("maximum", allowed.at_most)):
        if bound is not None:
            made[word] = int(bound) if float(bound).is_integer() else bound
    return made | ({"minLength": 1} if bare is str else {})


def _default(field: dataclasses.Field) -> str:
    default = field.default
    if default is dataclasses.MISSING or default is None:
        return ""
    return f" Default: {json.dumps(default)}."


def main(arguments: list[str] | None = None) -> int:
    """Writes the schema, or with --check says whether it is current; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tpujob_trainer.config.json_schema", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the file is out of date")
    parser.add_argument("--to", type=Path, default=TARGET, help="the file (default: the operator's, in a checkout)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if options.check:
        current = options.to.exists() and options.to.read_text(encoding="utf-8") == document()
        if not current:
            logger.error("%s is out of date; run `python -m tpujob_trainer.config.json_schema`", options.to)
        return 0 if current else 1
    options.to.parent.mkdir(parents=True, exist_ok=True)
    options.to.write_text(document(), encoding="utf-8")
    logger.info("wrote %s", options.to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
