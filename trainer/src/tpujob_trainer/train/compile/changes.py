"""Single changes to a configuration: the first that makes a step fit, and which of a handful is fastest.

Each is tried by compiling; nothing is guessed. Changes come in the order of what they cost in speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpujob_trainer.config.resolve import ResolvedConfig, resolve
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.shape import CustomShape

Block = Mapping[str, Any]
Compile = Callable[[Block], Mapping[str, Any]]
"""From a `trainer` block to the fields of `program.Compiled`."""

REMAT = ("none", "dots", "full")
"""From the most memory to the least."""


@dataclass(frozen=True)
class Change:
    """One field with another value."""

    field: str
    """As it is written under spec.trainer, with dots."""
    value: Any

    def applied(self, block: Block) -> dict[str, Any]:
        """The block with it."""
        *outer, last = self.field.split(".")
        changed: dict[str, Any] = {**block}
        inner = changed
        for key in outer:
            inner[key] = {**inner.get(key, {})}
            inner = inner[key]
        inner[last] = self.value
        return changed

    def __str__(self) -> str:
        value = f"[{', '.join(self.value)}]" if isinstance(self.value, list) else self.value
        return f"{self.field}: {value}"


@dataclass(frozen=True)
class Tried:
    """A change, and what the step with it came to."""

    change: Change | None
    """None: the configuration as it is."""
    compiled: Mapping[str, Any]


def saving_changes(block: Block, *, devices: int, slices: int, vocabulary: int) -> Iterator[Change]:
    """Changes that take less memory and leave batch and model as they are, those that cost least first.

    Args:
        block: the `trainer` block.
        devices: of all slices.
        slices: how many.
        vocabulary: ids of the tokenizer.
    """
    run = _resolved(block, devices, slices, vocabulary)
    if not isinstance(run.model, CustomShape):
        for remat in REMAT[REMAT.index(run.model.remat) + 1 :]:
            yield Change("model.remat", remat)
        if run.model.remat == "full" and not run.model.remat_offload:
            yield Change("model.rematOffload", ["input"])
    rows = run.batch_size // run.mesh.rows
    for parts in range(run.gradient_accumulation + 1, rows + 1):
        if rows % parts == 0:
            yield Change("gradientAccumulation", parts)
    context = 2 * run.mesh.context
    if _is_possible(Change("mesh.context", context).applied(block), devices, slices, vocabulary):
        yield Change("mesh.context", context)
    if run.optimizer.custom is None and run.optimizer.name != "adafactor":
        yield Change("optimizer.name", "adafactor")


def spending_changes(block: Block, *, devices: int, slices: int, vocabulary: int) -> Iterator[Change]:
    """Changes that take more memory and may be faster; the arguments are those of `saving_changes`."""
    run = _resolved(block, devices, slices, vocabulary)
    if not isinstance(run.model, CustomShape):
        if run.model.remat == "full" and not run.model.remat_save:
            yield Change("model.rematSave", ["attention"])
        if not run.model.remat_save and not run.model.remat_offload:
            for remat in reversed(REMAT[: REMAT.index(run.model.remat)]):
                yield Change("model.remat", remat)
    if run.gradient_accumulation > 1:
        yield Change("gradientAccumulation", 1)
    if _is_possible(Change("mesh.tensor", 2).applied(block), devices, slices, vocabulary) and run.mesh.tensor == 1:
        yield Change("mesh.tensor", 2)


def first_that_fits(block: Block, changes: Iterator[Change], compile_block: Compile) -> Tried | None:
    """The first change with which the step fits; None: none of them."""
    for change in changes:
        compiled = compile_block(change.applied(block))
        if compiled["fits"]:
            return Tried(change, compiled)
    return None


def ranked(block: Block, changes: Iterator[Change], compile_block: Compile) -> list[Tried]:
    """The configuration and each change, the shortest step that fits first."""
    tried = [Tried(None, compile_block(block))]
    tried += [Tried(change, compile_block(change.applied(block))) for change in changes]
    return sorted(tried, key=lambda each: (not each.compiled["fits"], each.compiled["ideal_step_seconds"]))


def _resolved(block: Block, devices: int, slices: int, vocabulary: int) -> ResolvedConfig:
    return resolve(parse_config(block), num_devices=devices, vocabulary=vocabulary, platform="tpu", slices=slices)


def _is_possible(block: Block, devices: int, slices: int, vocabulary: int) -> bool:
    try:
        _resolved(block, devices, slices, vocabulary)
    except ConfigurationError:
        return False
    return True
