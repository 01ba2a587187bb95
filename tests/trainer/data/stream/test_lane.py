"""A lane is what its definition says: the documents of its units, in their order, cut into windows of any size."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tpujob_trainer.data.manifest.plan import LanePlan
from tpujob_trainer.data.stream import lane as lane_module
from tpujob_trainer.data.stream.lane import Lane, LanePosition
from tpujob_trainer.data.stream.rows import SkippedRows, UnitRows
from tpujob_trainer.data.text.documents import Encoded, TokenDocuments
from tpujob_trainer.values.errors import ConfigurationError

ROW_BYTES = 10


class Ids:
    """Documents of ids; every third id is not learned. Remembers how many rows it was given at once."""

    refusal = "no token"

    def __init__(self, *, marks_learned: bool = False) -> None:
        self._marks_learned = marks_learned
        self.calls: list[int] = []

    def __call__(self, column: pa.Array) -> Encoded:
        self.calls.append(len(column))
        ids, lengths, _ = TokenDocuments()(column)
        return Encoded(ids, lengths, ids % 3 > 0 if self._marks_learned else None)


@dataclasses.dataclass
class Unit:
    """A unit that is read: `lengths` says how many ids each row has, 0 for a row of no use."""

    number: int
    lengths: Sequence[int]
    skipped: dict[str, int] = dataclasses.field(default_factory=dict)
    row_bytes: int = ROW_BYTES

    def ids(self, row: int) -> list[int]:
        """Other ids in each row of each unit."""
        return [1 + self.number * 10_000 + row * 100 + at for at in range(self.lengths[row])]

    def rows(self, first: int) -> UnitRows:
        numbers = np.arange(first, len(self.lengths))
        column = pa.array([self.ids(row) for row in numbers.tolist()], pa.large_list(pa.int32()))
        sizes = np.full(len(numbers), self.row_bytes)
        skipped = {cause: np.arange(count) for cause, count in self.skipped.items()}
        return UnitRows(column, numbers, 1000 + numbers, sizes, skipped)


class Reads:
    """Reads of units; those of which `is_there` says so are there at once. Remembers what was begun and waited for."""

    def __init__(self, units: Sequence[Unit], is_there: Callable[[int], bool] = lambda _: True) -> None:
        self._units = units
        self._is_there = is_there
        self.begun: list[tuple[int, int, int]] = []
        self.waited: list[Unit] = []

    def __call__(self, unit: int, epoch: int, first: int) -> Read:
        self.begun.append((unit, epoch, first))
        return Read(self, self._units[unit], first, self._is_there(len(self.begun) - 1))


@dataclasses.dataclass
class Read:
    reads: Reads
    unit: Unit
    first: int
    there: bool

    def is_there(self) -> bool:
        return self.there

    def wait(self) -> UnitRows:
        self.reads.waited.append(self.unit)
        return self.unit.rows(self.first)


@dataclasses.dataclass
class Whole:
    """All tokens of a lane, one by one, and where each comes from."""

    tokens: list[int]
    places: list[tuple[int, int, int, int]]
    end: tuple[int, int, int, int]

    @classmethod
    def of(cls, plan: LanePlan, number: int, units: Sequence[Unit], epochs: int) -> Whole:
        tokens: list[int] = []
        places: list[tuple[int, int, int, int]] = []
        for epoch in range(epochs):
            for index in range(plan.units_in(number)):
                unit = units[plan.unit(number, epoch, index)]
                for row in range(len(unit.lengths)):
                    tokens += unit.ids(row)
                    places += [(epoch, index, row, token) for token in range(unit.lengths[row])]
        return cls(tokens, places, (epochs, 0, 0, 0))

    def window(self, at: int, size: int) -> list[int]:
        found = self.tokens[at : at + size]
        return found + [0] * (size - len(found))

    def position(self, at: int, batches: int, digest: int) -> list[int]:
        place = self.places[at] if at < len(self.places) else self.end
        return [*place, batches, np.uint64(digest).view(np.int64).item()]

    def starts(self, at: int, there: int) -> list[int]:
        return [number for number in range(1, there) if self.places[at + number][3] == 0]

    def left(self, at: int, batch_tokens: int) -> int:
        """Batches with a token to predict from there on, at most two."""
        to_predict = max(len(self.tokens) - 1 - at, 0)
        return min(sum(1 for _ in range(0, to_predict, batch_tokens)), 2)


def lane_of(
    plan: LanePlan, units: Sequence[Unit], *, number: int = 0, length: int = 4, reads: Reads | None = None, **how
) -> Lane:
    how.setdefault("documents", Ids())
    how.setdefault("skipped", SkippedRows(lambda unit, row: f"unit {unit} row {row}"))
    return Lane(plan, number, sequence_length=length, start_read=reads or Reads(units), **how)


def position_of(numbers: np.ndarray) -> LanePosition:
    epoch, unit, row, token, batches, digest = numbers.tolist()
    return LanePosition(epoch, unit, row, token, batches, np.int64(digest).view(np.uint64).item())


ROWS = st.lists(st.integers(0, 7), max_size=6)
UNITS = st.lists(ROWS, min_size=2, max_size=5).filter(lambda units: all(map(sum, units)))
BATCHES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=12)


@settings(max_examples=100)
@given(
    lengths=UNITS,
    lanes=st.sampled_from([1, 2]),
    epochs=st.sampled_from([None, 1, 2]),
    length=st.integers(1, 6),
    asked=BATCHES,
    resumes=st.booleans(),
    marks_learned=st.booleans(),
    there=st.sets(st.integers(0, 60)),
)
def test_lane_is_its_documents_one_after_the_other(
    lengths, lanes, epochs, length, asked, resumes, marks_learned, there
):
    """`asked`: for each call, the windows of its batches, which may have none; `there`: reads that are done at once."""
    units = [Unit(number, each) for number, each in enumerate(lengths)]
    plan = LanePlan(len(units), 4, lanes, 3, epochs)
    number, batch_tokens = lanes - 1, 4 // lanes * length
    wanted = sum(map(sum, asked)) * length
    least = sum(sum(unit.lengths) for unit in units)
    whole = Whole.of(plan, number, units, epochs or len(units) * (wanted // least + 3))
    reads, documents = Reads(units, there.__contains__), Ids(marks_learned=marks_learned)
    lane = lane_of(plan, units, number=number, length=length, reads=reads, documents=documents)
    at = batches = digest = 0

    for windows in asked:
        ends = np.cumsum(windows) * length
        ready = lane.ready(ends)
        ends = ends[:ready]
        if epochs is None:
            assert lane.batches_left(ends).tolist() == [2] * ready
        else:
            assert lane.batches_left(ends).tolist() == [whole.left(at + end, batch_tokens) for end in ends.tolist()]
        span, positions = lane.take(ends)

        size = int(ends[-1]) + 1
        if size == 1:
            assert span is None
        else:
            real = min(size, max(len(whole.tokens) - at, 0))
            assert span is not None
            assert span.tokens.tolist() == whole.window(at, size)
            assert span.tokens.dtype == np.int32
            assert span.there == real
            assert span.starts.tolist() == whole.starts(at, real)
            assert span.learned is None or marks_learned
            if marks_learned and real:
                assert span.learned is not None
                assert span.learned.tolist() == [token % 3 > 0 for token in whole.window(at, size)]
        before = 0
        for end, found in zip(ends.tolist(), positions.tolist(), strict=True):
            batches += 1
            if end > before:
                content = np.array(whole.window(at + before, end - before + 1), dtype="<i4").tobytes()
                digest = xxhash.xxh3_64_intdigest(content, digest)
            assert found == whole.position(at + end, batches, digest) or end == 0
            assert found[4:] == whole.position(at + end, batches, digest)[4:]
            before = end
        at = min(at + size - 1, len(whole.tokens)) if epochs else at + size - 1
        if resumes:
            lane = lane_of(
                plan, units, number=number, length=length, reads=reads, documents=documents,
                position=position_of(positions[-1]),
            )  # fmt: skip
    assert all(epochs is None or epoch < epochs for _, epoch, _ in reads.begun)


@pytest.mark.parametrize(
    ("unit_tokens", "epochs", "there", "ready", "waited"),
    [
        pytest.param(3, None, 0, 1, 6, id="sixteen inputs and what the last predicts"),
        pytest.param(17, None, 0, 1, 1, id="just enough for one"),
        pytest.param(3, None, 12, 2, 12, id="two are there"),
        pytest.param(3, None, 99, 3, 17, id="all are there"),
        pytest.param(49, None, 0, 3, 1, id="just enough for all"),
        pytest.param(49, None, 99, 3, 1, id="just enough for all, and more is there"),
        pytest.param(34, 1, 0, 1, 1, id="just enough to know of two more"),
        pytest.param(33, 1, 0, 3, 2, id="one too few to know"),
        pytest.param(1, 1, 0, 3, 20, id="the end"),
    ],
)
def test_what_is_not_read_is_waited_for_by_the_first_batch_alone(unit_tokens, epochs, there, ready, waited):
    units = [Unit(number, [unit_tokens]) for number in range(20)]
    reads = Reads(units, lambda number: number < there)
    lane = lane_of(LanePlan(20, 4, 1, 3, epochs), units, reads=reads)

    assert lane.ready(np.array([16, 32, 48])) == ready
    assert len(reads.waited) == waited
    assert len(reads.begun) == min(waited + 1, 20)


LEAST, MOST, ROWS_AT_ONCE = lane_module._LEAST_BYTES, lane_module._MOST_BYTES, lane_module._MOST_ROWS


@pytest.mark.parametrize(
    ("row_bytes", "length", "rows"),
    [
        pytest.param(1, 4, ROWS_AT_ONCE, id="short rows"),
        pytest.param(LEAST // 8, 4, 8, id="a small batch"),
        pytest.param(LEAST // 8 - 1, 4, 9, id="a byte too few"),
        pytest.param(LEAST, LEAST // 8, 4, id="a large batch, eight bytes a token"),
        pytest.param(MOST // 4, MOST, 4, id="a huge batch"),
        pytest.param(MOST * 2, 4, 1, id="a huge row"),
    ],
)
def test_rows_are_tokenised_a_few_batches_at_a_time(row_bytes, length, rows):
    units = [Unit(0, [1] * (2 * ROWS_AT_ONCE), row_bytes=row_bytes)]
    documents = Ids()
    lane = lane_of(LanePlan(1, 4, 1, 3), units, length=length, documents=documents)

    lane.ready(np.array([1]))

    assert documents.calls[0] == rows


def test_last_rows_of_a_unit_are_tokenised_together():
    units, documents = [Unit(0, [1] * 5)], Ids()

    lane_of(LanePlan(1, 4, 1, 3, 1), units, documents=documents).ready(np.array([4]))

    assert documents.calls == [5]


def test_rows_without_a_token_are_counted_as_skipped():
    skipped = SkippedRows(lambda unit, row: f"unit {unit} row {row}")

    lane_of(LanePlan(1, 4, 1, 3, 1), [Unit(0, [2, 0, 3, 0])], skipped=skipped).ready(np.array([4]))

    assert (skipped.used, dict(skipped.by_cause)) == (2, {"no token": 2})
    assert "unit 0 row 1001, unit 0 row 1003" in skipped.summary()


def in_order(plan: LanePlan, skipped: Sequence[int | None], source: int = 0) -> list[Unit]:
    """Units that a source has in this order: so many skipped rows and no other, or None: two rows of use."""
    units = [Unit(number, [2, 2]) for number in range(plan.num_units)]
    for index, count in enumerate(skipped):
        number = plan.unit(0, 0, index, source)
        units[number] = Unit(number, [2, 2]) if count is None else Unit(number, [], {"empty": count})
    return units


MANY = lane_module._MOST_SKIPPED_ROWS


@pytest.mark.parametrize(
    ("skipped", "refused"),
    [
        pytest.param([1, 1, 1], 3, id="whole data"),
        pytest.param([MANY, 1, None], 1, id="many rows"),
        pytest.param([MANY - 1, 0, 1, None], 3, id="many rows of several units"),
        pytest.param([None, MANY, None], 1, id="many rows after one of use"),
        pytest.param([None, MANY - 1, 1, None], 2, id="many rows of two units after one of use"),
        pytest.param([MANY - 1, None, MANY - 1, None], None, id="rows of use between"),
        pytest.param([1, None, 1], None, id="a unit of use"),
        pytest.param([1, None, MANY], 1, id="many rows, others before one of use"),
    ],
)
def test_data_without_text_is_refused(skipped, refused):
    plan = LanePlan(len(skipped), 1, 1, 3, 1)
    lane = lane_of(plan, in_order(plan, skipped))

    if refused is None:
        assert lane.ready(np.array([10_000])) == 1
    else:
        with pytest.raises(ConfigurationError, match=f"no usable text in {refused} units of rows, one after the other"):
            lane.ready(np.array([10_000]))


def test_source_without_text_is_refused_whatever_the_others_have():
    plan = LanePlan(5, 1, 1, 3, source_units=(range(3), range(3, 5)), weights=(0.5, 0.5))
    lane = lane_of(plan, in_order(plan, [1, 1], source=1), source=1)

    with pytest.raises(ConfigurationError, match="no usable text in 2 units of rows"):
        lane.ready(np.array([1]))
