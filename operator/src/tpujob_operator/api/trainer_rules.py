"""Rules between fields of the `trainer` block, and between it and the accelerator. Each yields sentences.

Plain arithmetic on what was written: no JAX, and no defaults but those of the presets that the trainer publishes
beside its schema. Values of a wrong type are the schema's to refuse, and are passed over here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tpujob_operator.api.trainer_schema import presets

type Block = Mapping[str, Any]
type Problems = Iterator[str]

FIELD = "spec.trainer"
SOURCES = ("path", "dataset", "mixture")
LONGEST_ROWS = 2**31 - 1
"""Tokens of a global batch: positions are 32-bit integers."""


def trainer_contradictions(block: Block, *, devices: int | None) -> Iterator[str]:
    """What contradicts itself in a block.

    Args:
        block: the trainer block as written.
        devices: JAX devices of the whole job; None if they are not known, or if the workers do not train together.
    """
    yield from (problem for rule in _RULES for problem in rule(block))
    if devices is not None:
        yield from _rows(block, devices)


def _length_of_run(block: Block) -> Problems:
    if block.get("task") == "extract":
        return  # reads the data once
    if "steps" in block and "tokens" in block:
        yield f"{FIELD}.tokens: excludes steps, as each gives the length of the run; keep one of them"
    if "steps" not in block and "tokens" not in block:
        yield f"{FIELD}.steps: is missing; give steps or tokens, the length of the run"


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


def _rows(block: Block, devices: int) -> Problems:
    given, accumulation = _number(block, "batchSize"), _number(block, "gradientAccumulation") or 1
    rows, unit = given or _default_rows(block), accumulation * devices
    if rows is None or rows % unit == 0:
        return
    below = rows // unit * unit
    works = f"{below}, {below + unit} and {below + 2 * unit}" if below else f"{unit}, {2 * unit} and {3 * unit}"
    parts = f" in {accumulation} parts (gradientAccumulation)" if accumulation > 1 else ""
    derived = "" if given else f" (the default of preset {block['model']['preset']})"
    yield f"{FIELD}.batchSize: {rows} rows{derived} do not divide over {devices} devices{parts}; {works} do"


def _default_rows(block: Block) -> int | None:
    preset = _preset(block)
    length = _number(block, "sequenceLength") or preset.get("sequenceLength")
    tokens = preset.get("batchTokens")
    return max(1, tokens // length) if tokens and length else None


def _preset(block: Block) -> Mapping[str, Any]:
    model = block.get("model")
    name = model.get("preset") if isinstance(model, Mapping) else None
    return presets().get(name, {}) if isinstance(name, str) else {}


def _number(block: Block, *path: str) -> int | None:
    value: Any = block
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


_RULES: tuple[Callable[[Block], Problems], ...] = (_length_of_run, _sources, _warmup, _heads, _batch_tokens)
