"""Rules between fields of the `trainer` block, and between it and the accelerator. Each yields sentences.

The rows that the trainer publishes, and arithmetic on what was written. No JAX, and no defaults but those of the
contract and of the presets that the trainer publishes beside its schema. Values of a wrong type are the schema's to
refuse, and are passed over here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tpujob_contract.batch_rows import (
    DEFAULT_BATCH_TOKENS,
    DEFAULT_SEQUENCE_LENGTH,
    divide_slice,
    rows_problem,
)
from tpujob_contract.block_rules import broken_rules
from tpujob_contract.storage_address import credentials_problems
from tpujob_resource.rules.trainer_schema import block_rules, presets

type Block = Mapping[str, Any]
type Problems = Iterator[str]

FIELD = "spec.trainer"
SOURCES = ("path", "dataset", "mixture")
LONGEST_ROWS = 2**31 - 1
"""Tokens of a global batch: positions are 32-bit integers."""


def trainer_contradictions(block: Block, *, devices: int | None, slices: int = 1) -> Iterator[str]:
    """What contradicts itself in a block.

    Args:
        block: the trainer block as written.
        devices: JAX devices of the whole job; None if they are not known, or if the workers do not train together.
        slices: Over which they lie.
    """
    yield from credentials_problems(block, FIELD)
    yield from (f"{FIELD}.{sentence}" for sentence in broken_rules(block, block_rules()))
    yield from (problem for rule in _RULES for problem in rule(block))
    if devices is not None:
        yield from _rows(block, devices, slices)


def _sources(block: Block) -> Problems:
    for path, data in ((f"{FIELD}.data", block.get("data")), (f"{FIELD}.evaluation.data", _inner(block, "evaluation"))):
        given = [source for source in SOURCES if isinstance(data, Mapping) and source in data]
        if len(given) > 1:
            yield f"{path}: {' and '.join(given)} exclude each other; keep one source, or list them in mixture"


def _inner(block: Block, key: str) -> Any:
    part = block.get(key)
    return part.get("data") if isinstance(part, Mapping) else None


def _warmup(block: Block) -> Problems:
    steps, warmup = _number(block, "steps"), _number(block, "optimizer", "warmupSteps")
    if steps is not None and warmup is not None and warmup >= steps:
        yield (
            f"{FIELD}.optimizer.warmupSteps: {warmup} leaves nothing of the run's {steps} steps; it must be less, "
            f"{steps // 10} for instance"
        )


def _heads(block: Block) -> Problems:
    preset = _preset(block)
    heads = _number(block, "model", "heads") or preset.get("heads")
    kv_heads = _number(block, "model", "kvHeads")
    if heads and kv_heads and heads % kv_heads:
        yield f"{FIELD}.model.kvHeads: {kv_heads} does not divide heads ({heads})"
    width = _number(block, "model", "embedDim")
    if width and heads and width % heads and _number(block, "model", "headDim") is None:
        yield f"{FIELD}.model.heads: {heads} does not divide embedDim ({width}); change one, or give headDim"


def _batch_tokens(block: Block) -> Problems:
    length, rows = _number(block, "sequenceLength"), _number(block, "batchSize")
    if length and rows and length * rows > LONGEST_ROWS:
        yield (
            f"{FIELD}.batchSize: {rows} rows of {length} tokens are {length * rows} in one batch; at most "
            f"{LONGEST_ROWS}, so {LONGEST_ROWS // length} rows"
        )


def rows_divide(block: Block, devices: int, slices: int) -> bool:
    """Whether the rows of a global batch divide over so many devices."""
    return next(_rows(block, devices, slices), None) is None


def _rows(block: Block, devices: int, slices: int) -> Problems:
    """By the rule of the trainer; what depends on the model's dimensions is left to it."""
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
    """Of a preset, or of a model without one; None of a task that has no default."""
    tokens = _preset(block).get("batchTokens")
    if tokens is None and _trains_without_preset(block):
        tokens = DEFAULT_BATCH_TOKENS
    return max(1, tokens // length) if tokens else None


def _trains_without_preset(block: Block) -> bool:
    model = block.get("model")
    return block.get("task", "pretrain") == "pretrain" and isinstance(model, Mapping) and "preset" not in model


def _tokenizer(block: Block) -> Problems:
    data, model = block.get("data"), block.get("model")
    if not isinstance(data, Mapping) or not isinstance(model, Mapping) or data.get("tokenizer") is not None:
        return
    if model.get("from") is None and (words := _preset(block).get("vocabSize")):
        yield (
            f"{FIELD}.data.tokenizer: required with model.preset {model['preset']}, whose vocabulary has {words} ids; "
            "name its tokenizer.json or its folder, or write bytes to train on bytes"
        )


def _preset(block: Block) -> Mapping[str, Any]:
    model = block.get("model")
    name = model.get("preset") if isinstance(model, Mapping) else None
    return presets().get(name, {}) if isinstance(name, str) else {}


def _number(block: Block, *path: str) -> int | None:
    value: Any = block
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


_RULES: tuple[Callable[[Block], Problems], ...] = (
    _sources,
    _tokenizer,
    _warmup,
    _heads,
    _batch_tokens,
)
