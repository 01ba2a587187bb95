"""The least time of a step, from the schedule of its compiled program: what it computes, and where it waits.

The text of a scheduled program lists the operations of a core in order. During an exchange without a start and a done
the core waits; between a start and its done an exchange overlaps with arithmetic, one exchange after the other. Rates
are peak rates, and only products and attention count as work: a step takes longer, never less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tpujob_trainer.train.compile.collectives import Transfer, transfer
from tpujob_trainer.train.compile.hlo import Program
from tpujob_trainer.train.compile.matrix_products import MatrixProducts

_NAME = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = ")
_ENDED = re.compile(r" (?:\w+-)*done\(.*?%([\w.\-]+)")
_ATTENTION = re.compile(r"%?splash_\w*?_(fwd|dq|dkv)_\S* = .*tpu_custom_call")


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Rates of one device, per second."""

    operations: float
    """FLOPs of products in bfloat16."""
    narrow: dict[str, float]
    """Speed-up of products whose operands have these types, as HLO names them."""
    link_bytes: float
    """Sent on all links within a slice together."""


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """The times of one run of a program, in seconds."""

    computing: float = 0.0
    """Products and attention, with recomputation."""
    sending: float = 0.0
    """Exchanges on the links within a slice, whether the core waits for them or not."""
    waiting: float = 0.0
    """Part of `sending` during which nothing is computed."""
    waiting_in_loops: float = 0.0
    """Part of `waiting` in the body of a loop, over layers or over microbatches."""

    @property
    def total(self) -> float:
        """The least time of the program."""
        return self.computing + self.waiting

    def repeated(self, times: int) -> StepTime:
        """The times of a loop with this body."""
        return StepTime(
            computing=times * self.computing,
            sending=times * self.sending,
            waiting=times * self.waiting,
            waiting_in_loops=times * self.waiting,
        )

    def __add__(self, other: StepTime) -> StepTime:
        return StepTime(
            computing=self.computing + other.computing,
            sending=self.sending + other.sending,
            waiting=self.waiting + other.waiting,
            waiting_in_loops=self.waiting_in_loops + other.waiting_in_loops,
        )


def step_time(
    text: str, rates: Rates, *, attention_seconds: float, devices_per_slice: int, experts: int | None = None
) -> StepTime:
    """The least time of one run.

    Args:
        text: Of the compiled and scheduled program.
        rates: Of a device.
        attention_seconds: Time of a device for all forward passes of attention, which the text does not show.
        devices_per_slice: Identifies exchanges between slices, which overlap with arithmetic and do not count.
        experts: Of a layer, on all devices; None: there are none, or each device has all of them.
    """
    program = Program(text)
    kernels = [(match[1], run.times) for run in program.runs() if (match := _ATTENTION.search(run.line))]
    # A backward pass has the FLOPs of two forward passes: one for each of its two kernels.
    passes = sum(times for kind, times in kernels if kind == "dq") or sum(times for _, times in kernels)
    products = MatrixProducts(program, experts)
    reader = _Reader(program, products, rates, attention_seconds / passes if passes else 0.0, devices_per_slice)
    return reader.computation(program.entry)


class _Reader:
    def __init__(
        self,
        program: Program,
        products: MatrixProducts,
        rates: Rates,
        kernel_seconds: float,
        devices_per_slice: int,
    ) -> None:
        self._program = program
        self._products = products
        self._rates = rates
        self._kernel_seconds = kernel_seconds
        self._devices_per_slice = devices_per_slice

    def computation(self, name: str) -> StepTime:
        """The times of one run of a computation."""
        lines = self._program.computations.get(name, [])
        bodies = [self._program.loop_body(line) for line in lines]
        transfers = [[] if body else [*self._transfers(line)] for body, line in zip(bodies, lines, strict=True)]
        last = {each.channel: place for place, found in enumerate(transfers) for each in found if each.is_piece}
        clock = _Clock()
        for place, (line, body) in enumerate(zip(lines, bodies, strict=True)):
            if body:
                clock.compute(self.computation(body).repeated(self._program.trips(line)))
                continue
            for each in transfers[place]:
                seconds = each.sent_bytes / self._rates.link_bytes
                if each.is_piece:
                    clock.start(each.channel, seconds)
                elif each.is_started:
                    clock.start(_name(line), seconds)
                else:
                    clock.exchange(seconds)
            clock.compute(StepTime(computing=self._computing(line, name)))
            for each in transfers[place]:
                if each.is_piece and last[each.channel] == place:
                    clock.end(each.channel)
            if ended := _ENDED.search(line):
                clock.end(ended[1])
        return clock.time

    def _transfers(self, line: str) -> Iterator[Transfer]:
        """The exchanges within a slice that a line, or a computation that it calls, makes or starts."""
        for run in self._program.inside(line):
            found = transfer(run, self._devices_per_slice)
            if found is not None and not found.is_between_slices:
                yield found

    def _computing(self, line: str, computation: str) -> float:
        if _ATTENTION.search(line):
            return self._kernel_seconds
        seconds = 0.0
        for run in self._program.inside(line):
            operations, kind = self._products.of(run.line, run.computation or computation)
            seconds += operations / (self._rates.operations * self._rates.narrow.get(kind, 1.0))
        return seconds


class _Clock:
    """The clock of a core and the links of a device, while a computation runs."""

    def __init__(self) -> None:
        self.time = StepTime()
        self._now = 0.0
        self._links_free = 0.0
        self._ends: dict[str, float] = {}

    def compute(self, part: StepTime) -> None:
        """Adds work or a loop of the core; started exchanges continue."""
        self.time += part
        self._now += part.total

    def exchange(self, seconds: float) -> None:
        """Adds an exchange that the core waits for."""
        self.start("", seconds)
        self.end("")

    def start(self, name: str, seconds: float) -> None:
        """Starts an exchange, which overlaps with what follows; further pieces of it change nothing."""
        if name not in self._ends:
            self._links_free = max(self._now, self._links_free) + seconds
            self._ends[name] = self._links_free
            self.time += StepTime(sending=seconds)

    def end(self, name: str) -> None:
        """Waits for an exchange; one that was not started is not within the slice, and is ignored."""
        waits = self._ends.pop(name, 0.0) - self._now
        if waits > 0:
            self.time += StepTime(waiting=waits)
            self._now += waits


def _name(line: str) -> str:
    match = _NAME.match(line)
    return match[1] if match else ""
