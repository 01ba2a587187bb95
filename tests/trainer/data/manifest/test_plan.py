import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpujob_trainer.data import DataConfig, LanePlan, Manifest, plan_lanes
from tpujob_trainer.values.errors import ConfigurationError

MEBIBYTE = 1 << 20


def sized(num_units: int, largest_unit_bytes: int = 8 * MEBIBYTE) -> Manifest:
    """What a plan wants to know of a manifest."""
    return cast(
        "Manifest",
        SimpleNamespace(num_units=num_units, largest_unit_bytes=largest_unit_bytes, source_units=(range(num_units),)),
    )


def lanes_for(num_units: int, batch_size: int, **config: Any) -> int:
    return plan_lanes(sized(num_units), DataConfig(path="p", **config), batch_size=batch_size, seed=0).lanes


@settings(max_examples=60)
@given(units=st.integers(1, 300), lanes=st.integers(1, 40), epoch=st.integers(0, 5), seed=st.integers(0, 99))
def test_lanes_share_out_each_epoch(units, lanes, epoch, seed):
    lanes = min(lanes, units)
    plan = LanePlan(units, lanes * 2, lanes, seed)

    read = [plan.unit(lane, epoch, index) for lane in range(lanes) for index in range(plan.units_in(lane))]

    assert sorted(read) == list(range(units))
    assert all(plan.units_in(lane) >= 1 for lane in range(lanes))


@pytest.mark.parametrize(("seed", "epoch"), [(1, 0), (0, 1)], ids=["seed", "epoch"])
def test_units_come_in_another_order(seed, epoch):
    first, other = LanePlan(500, 1, 1, 0), LanePlan(500, 1, 1, seed)

    same = sum(first.unit(0, 0, index) == other.unit(0, epoch, index) for index in range(500))

    assert same < 10  # one in five hundred is expected to agree by chance


@given(batch=st.sampled_from([1, 6, 8, 60]), data=st.data())
def test_each_row_has_one_lane(batch, data):
    lanes = data.draw(st.sampled_from([number for number in range(1, batch + 1) if batch % number == 0]))
    plan = LanePlan(1000, batch, lanes, 0)

    assert [row for lane in range(lanes) for row in plan.rows_of(lane)] == list(range(batch))
    assert all(plan.lanes_of([row]) == [lane] for lane in range(lanes) for row in plan.rows_of(lane))


@pytest.mark.parametrize(
    ("units", "batch", "config", "expected"),
    [
        pytest.param(1000, 32, {}, 32, id="one for each row"),
        pytest.param(1000, 32, {"lanes": 4}, 4, id="as many as asked for"),
        pytest.param(1000, 32, {"buffer_bytes": 160 * MEBIBYTE}, 8, id="a divisor within the budget of 10"),
        pytest.param(1000, 32, {"buffer_bytes": 1}, 1, id="at least one"),
        pytest.param(5, 32, {}, 4, id="never more than units"),
        pytest.param(1, 1, {}, 1, id="one of everything"),
    ],
)
def test_number_of_lanes(units, batch, config, expected):
    assert lanes_for(units, batch, **config) == expected


def test_run_that_goes_on_keeps_its_lanes():
    config = DataConfig(path="p", buffer_bytes=1)

    assert plan_lanes(sized(1000), config, batch_size=32, seed=0, begun_with=16).lanes == 16


def test_batch_without_good_divisor_is_told(caplog):
    with caplog.at_level(logging.WARNING):
        assert lanes_for(1000, 2 * 37, buffer_bytes=16 * 32 * MEBIBYTE) == 2

    assert "batchSize 64 or 96 would have 32 lanes" in caplog.text


def test_few_units_are_told(caplog):
    with caplog.at_level(logging.WARNING):
        lanes_for(5, 32)

    assert "only 5 units for batchSize 32: 4 lanes fill 8 rows each" in caplog.text


@pytest.mark.parametrize(
    ("units", "batch", "lanes", "message"),
    [
        pytest.param(100, 12, 5, "5 does not divide batchSize 12; these do: 1, 2, 3, 4, 6, 12", id="no divisor"),
        pytest.param(5, 12, 6, "6 is more than the 5 units of the data; these work: 1, 2, 3, 4", id="too few units"),
    ],
)
def test_lanes_that_cannot_be_are_refused(units, batch, lanes, message):
    with pytest.raises(ConfigurationError, match=r"^spec\.trainer\.data\.lanes: ") as refused:
        lanes_for(units, batch, lanes=lanes)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("batch", "listed"),
    [
        (36, "1, 2, 3, 4, 6, 9, 12, 18, 36"),
        (72, "1, 2, 3, 4, 6, 8, 9, 12, 18, 24, 36, 72"),
        (120, "…, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60, 120"),
        (4096, "…, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096"),
    ],
    ids=["a square", "twelve divisors", "the twelve largest", "the twelve largest of thirteen"],
)
def test_lanes_that_divide_the_batch_are_listed(batch, listed):
    with pytest.raises(ConfigurationError, match=f"these do: {listed}$"):
        LanePlan(500, batch, batch - 1, 0)


def test_rows_of_one_source_are_all_its():
    assert LanePlan(8, 4, 2, 0).sources_of_rows(3).tolist() == [0, 0, 0, 0]


PINNED = [[0, 0, 1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 0, 1, 1]]
"""Sources of the rows of batches 0, 1 and 2^62: other ones would be other data for a run that goes on."""


def test_sources_of_rows_stay_what_they_are():
    plan = LanePlan(8, 8, 2, 5, source_units=(range(4), range(4, 8)), weights=(0.25, 0.75))
    assert [plan.sources_of_rows(batch).tolist() for batch in (0, 1, 2**62)] == PINNED


FAR = [[1, 0, 1, 0, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1, 0, 1]]


def test_batches_far_away_have_their_sources_too():
    """Rows are numbered modulo 2^64."""
    plan = LanePlan(8, 8, 2, 5, source_units=(range(4), range(4, 8)), weights=(0.25, 0.75))
    assert [plan.sources_of_rows(batch).tolist() for batch in (2**60 + 1, 3 * 2**60 + 1)] == FAR


PINNED_UNITS = ([[2, 1], [3, 0], [2, 3], [1, 0]], [[5, 7, 4], [8, 6], [8, 7, 5], [4, 6]])
"""Of both sources, in epochs 0 and 1 of both lanes: another order would be another run for one that goes on."""


def test_order_of_units_stays_what_it_is():
    plan = LanePlan(9, 8, 2, 5, source_units=(range(4), range(4, 9)), weights=(0.25, 0.75))

    def order(source):
        return [
            [plan.unit(lane, epoch, index, source) for index in range(plan.units_in(lane, source))]
            for epoch in (0, 1)
            for lane in (0, 1)
        ]

    assert (order(0), order(1)) == PINNED_UNITS


def test_first_source_is_meant_where_none_is_said():
    plan = LanePlan(9, 8, 2, 5, source_units=(range(4), range(4, 9)), weights=(0.25, 0.75))
    assert (plan.units_in(0), plan.units_in(0, 1)) == (2, 3)
    assert [plan.unit(0, 0, index) for index in (0, 1)] == [plan.unit(0, 0, index, 0) for index in (0, 1)]


@pytest.mark.parametrize(
    ("lanes", "batch", "sources", "message"),
    [
        pytest.param(4, 4, (range(4), range(4, 7)), "lanes: 4 is more than the 3 units of a source", id="one of two"),
        pytest.param(
            1, 1, (range(0),), "lanes: 1 is more than the 0 units of the data; the data has no rows", id="none"
        ),
        pytest.param(0, 4, (range(4),), "lanes: 0 does not divide batchSize 4", id="no lane"),
        pytest.param(1, 0, (range(4),), "batchSize: 0 is less than 1", id="no row"),
    ],
)
def test_plan_that_cannot_be_is_refused(lanes, batch, sources, message):
    with pytest.raises(ConfigurationError, match=message):
        LanePlan(sum(map(len, sources)), batch, lanes, 0, source_units=sources)


def test_batch_without_a_row_is_refused_before_lanes_are_counted():
    with pytest.raises(ConfigurationError, match="batchSize: 0 is less than 1"):
        plan_lanes(sized(5), DataConfig(path="p"), batch_size=0, seed=0)


@pytest.mark.parametrize(
    ("batch", "limit", "is_told"), [(2 * 37, 4, True), (8, 4, False), (6, 4, False), (10, 4, True), (9, 3, False)]
)
def test_half_of_the_lanes_that_would_fit_is_told(caplog, batch, limit, is_told):
    with caplog.at_level(logging.WARNING):
        lanes_for(1000, batch, buffer_bytes=limit * 16 * MEBIBYTE)

    assert ("has no divisor near" in caplog.text) is is_told
    assert "only" not in caplog.text


def test_units_without_bytes_need_no_memory():
    config = DataConfig(path="p", buffer_bytes=2)
    assert plan_lanes(sized(9, 0), config, batch_size=8, seed=0).lanes == 1
