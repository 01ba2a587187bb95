"""Rules of the `trainer` block: the schema that the trainer publishes, and between its fields and the accelerator.

The schema is a file of this package, written by `make generate`: the operator knows the trainer's fields without
importing it. Without the file every block passes, and only the trainer itself reports errors.

The rules are the rows that the trainer publishes, and arithmetic on the written values. They use no JAX, and no
defaults except those of the contract and of the presets that the trainer publishes with its schema. The schema refuses
values of a wrong type; they are skipped here.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from tpujob_contract.batch_rows import DEFAULT_BATCH_TOKENS, DEFAULT_SEQUENCE_LENGTH, divide_slice, rows_problem
from tpujob_contract.field_rules import Rule, broken_rules, from_rows
from tpujob_contract.storage_address import credentials_problems
from tpujob_resource.rules.schema_fit import is_valid_fast

FILE = "trainer_schema.json"
BLOCK_PATH = ("spec", "trainer")


@cache
def trainer_schema() -> Mapping[str, Any] | None:
    """The published schema; None: the package has none."""
    file = resources.files("tpujob_resource.rules").joinpath(FILE)
    if not file.is_file():
        return None
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


PRESETS = "x-tpujob-presets"


def presets() -> Mapping[str, Mapping[str, Any]]:
    """Numbers of each preset model, which the trainer publishes with its schema; empty if it does not."""
    found: Mapping[str, Mapping[str, Any]] = (trainer_schema() or {}).get(PRESETS, {})
    return found


RULES = "x-tpujob-rules"


@cache
def block_rules() -> tuple[Rule, ...]:
    """The trainer's rules between fields of its block; empty if it does not publish them."""
    return from_rows((trainer_schema() or {}).get(RULES, ()))


def trainer_problems(block: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> list[str]:
    """The errors in a block, one line each; empty if there is no schema."""
    schema = trainer_schema() if schema is None else schema
    if schema is None or is_valid_fast(block, schema):
        return []
    from tpujob_resource.rules.schema_errors import schema_errors

    return schema_errors(block, schema, BLOCK_PATH)


type Block = Mapping[str, Any]
type Problems = Iterator[str]

FIELD = "spec.trainer"
LONGEST_ROWS = 2**31 - 1
"""Most tokens of a global batch: positions are 32-bit integers."""


def trainer_contradictions(block: Block, *, devices: int | None, slices: int = 1) -> Iterator[str]:
    """An error message for each contradiction in a block.

    Args:
        block: The trainer block as written.
        devices: JAX devices of the whole job; None: they are unknown, or the workers do not train together.
        slices: The number of slices with these devices.
    """
    yield from credentials_problems(block, FIELD)
    yield from (f"{FIELD}.{sentence}" for sentence in broken_rules(block, block_rules()))
    yield from _batch_tokens(block)
    if devices is not None:
        yield from _rows(block, devices, slices)


def _batch_tokens(block: Block) -> Problems:
    length, rows = _number(block, "sequenceLength"), _number(block, "batchSize")
    if length and rows and length * rows > LONGEST_ROWS:
        yield (
            f"{FIELD}.batchSize: {rows} rows of {length} tokens are {length * rows} in one batch; at most "
            f"{LONGEST_ROWS}, so {LONGEST_ROWS // length} rows"
        )


def rows_divide(block: Block, devices: int, slices: int) -> bool:
    """Whether the rows of a global batch divide over this many devices."""
    return next(_rows(block, devices, slices), None) is None


def _rows(block: Block, devices: int, slices: int) -> Problems:
    """Applies the trainer's rule for rows; the trainer itself checks what depends on the model's dimensions."""
    given, accumulation = _number(block, "batchSize"), _number(block, "gradientAccumulation") or 1
    length = _number(block, "sequenceLength") or _preset(block).get("sequenceLength") or DEFAULT_SEQUENCE_LENGTH
    rows = given or _default_rows(block, length)
    if rows is None:
        return
    axes = {name: _number(block, "mesh", name) for name in ("tensor", "context", "expert", "fsdp")}
    sizes = {name: size for name, size in axes.items() if size is not None}
    try:
        _, rest = divide_slice(devices // slices, slices=slices, rows=rows // accumulation, positions=length, **sizes)
    except ValueError as error:
        yield f"{FIELD}.mesh.{error}"
        return
    parts = slices * rest * sizes.get("expert", 1)
    preset = _preset(block) and block["model"]["preset"]
    derived = f"the default of preset {preset}" if preset else "the default"
    problem = rows_problem(
        rows, parts=parts, devices=devices, accumulation=accumulation, derived="" if given else derived
    )
    if problem is not None:
        yield f"{FIELD}.batchSize: {problem}"


def _default_rows(block: Block, length: int) -> int | None:
    """The default rows of a preset, or of pretraining without one; None: the task has no default."""
    tokens = _preset(block).get("batchTokens")
    if tokens is None and _trains_without_preset(block):
        tokens = DEFAULT_BATCH_TOKENS
    return max(1, tokens // length) if tokens else None


def _trains_without_preset(block: Block) -> bool:
    model = block.get("model")
    return block.get("task", "pretrain") == "pretrain" and isinstance(model, Mapping) and "preset" not in model


def _preset(block: Block) -> Mapping[str, Any]:
    model = block.get("model")
    name = model.get("preset") if isinstance(model, Mapping) else None
    return presets().get(name, {}) if isinstance(name, str) else {}


def _number(block: Block, *path: str) -> int | None:
    value: Any = block
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
