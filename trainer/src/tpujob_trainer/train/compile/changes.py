"""Changes to a configuration, and the first single one that makes a step fit.

Each change is compiled, not estimated. Changes are in the order of their cost in speed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpujob_trainer.config.resolve import ResolvedConfig, resolve
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.model.chips import Chip
from tpujob_trainer.model.shape import CustomShape
from tpujob_trainer.values.errors import ConfigurationError

Block = Mapping[str, Any]
Compile = Callable[[Block], Mapping[str, Any]]
"""From a `trainer` block to the fields of `program.Compiled`."""

REMAT = ("none", "dots", "full")
"""From the most memory to the least."""


@dataclass(frozen=True)
class Change:
    """A new value of a field."""

    field: str
    """Path below spec.trainer, with dots."""
    value: int | str | tuple[str, ...] | None
    """None: the field is left out."""

    def applied(self, block: Block) -> dict[str, Any]:
        """The block with this change."""
        *outer, last = self.field.split(".")
        changed: dict[str, Any] = {**block}
        inner = changed
        for key in outer:
            inner[key] = {**inner.get(key, {})}
            inner = inner[key]
        inner.pop(last, None)
        if self.value is not None:
            inner[last] = self.json_value
        return changed

    @property
    def json_value(self) -> Any:
        """The value as in JSON."""
        return list(self.value) if isinstance(self.value, tuple) else self.value

    def __str__(self) -> str:
        value = f"[{', '.join(self.value)}]" if isinstance(self.value, tuple) else self.value
        return f"{self.field}: left out" if value is None else f"{self.field}: {value}"


@dataclass(frozen=True)
class Tried:
    """Changes, and the figures of the step compiled with them."""

    changes: tuple[Change, ...]
    """Empty: the unchanged configuration."""
    compiled: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Place:
    """The hardware and tokenizer that a configuration is resolved for."""

    devices: int
    """Number of devices of all slices."""
    slices: int
    vocabulary: int
    """Number of token IDs of the tokenizer."""
    chip: Chip

    def resolved(self, block: Block) -> ResolvedConfig:
        """The resolved configuration.

        Raises:
            ConfigurationError: it does not fit this hardware.
        """
        return resolve(
            parse_config(block),
            num_devices=self.devices,
            vocabulary=self.vocabulary,
            platform="tpu",
            slices=self.slices,
            chip=self.chip,
        )


def saving_changes(block: Block, place: Place) -> Iterator[Change]:
    """Changes that save memory and leave batch and model unchanged, the cheapest first."""
    run = place.resolved(block)
    if not isinstance(run.model, CustomShape):
        for remat in REMAT[REMAT.index(run.model.remat) + 1 :]:
            yield Change("model.remat", remat)
        if run.model.remat == "full" and not run.model.remat_offload:
            yield Change("model.rematOffload", ("input",))
    rows = run.batch_size // run.mesh.rows
    for parts in range(run.gradient_accumulation + 1, rows + 1):
        if rows % parts == 0:
            yield Change("gradientAccumulation", parts)
    context = 2 * run.mesh.context
    if _is_possible(Change("mesh.context", context).applied(block), place):
        yield Change("mesh.context", context)
    if run.optimizer.custom is None and run.optimizer.name != "adafactor":
        yield Change("optimizer.name", "adafactor")


def first_that_fits(block: Block, changes: Iterator[Change], compile_block: Compile) -> Tried | None:
    """The first change with which the step fits; None: there is none."""
    for change in changes:
        compiled = compile_block(change.applied(block))
        if compiled["fits"]:
            return Tried((change,), compiled)
    return None


def with_changes(block: Block, changes: tuple[Change, ...]) -> Block:
    """A configuration with all changes."""
    for change in changes:
        block = change.applied(block)
    return block


def _is_possible(block: Block, place: Place) -> bool:
    try:
        place.resolved(block)
    except ConfigurationError:
        return False
    return True
