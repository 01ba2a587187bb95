"""Rules between fields of the `trainer` block, and between it and the accelerator. Each yields error messages.

These are the rows that the trainer publishes, and arithmetic on the written values. They use no JAX, and no defaults
except those of the contract and of the presets that the trainer publishes with its schema. The schema refuses values of
a wrong type; they are skipped here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tpujob_contract.batch_rows import (
    DEFAULT_BATCH_TOKENS,
    DEFAULT_SEQUENCE_LENGTH,
    divide_slice,
    rows_problem,
)
from tpujob_contract.field_rules import broken_rules
from tpujob_contract.storage_address import credentials_problems
from tpujob_resource.rules.trainer_schema import block_rules, presets

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
