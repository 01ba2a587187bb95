"""Charts: the right places, no peak lost, nothing that is not a number."""

import re

import pytest

from tpujob_trainer.telemetry import charts
from tpujob_trainer.telemetry.charts import Line, Mark, chart


def points_of(svg: str) -> list[list[tuple[float, ...]]]:
    return [
        [tuple(map(float, pair.split(","))) for pair in found.split()] for found in re.findall(r'points="([^"]*)"', svg)
    ]


def test_a_line_fills_the_chart():
    ((first, middle, last),) = points_of(chart([Line("a", [(0, 10), (5, 5), (10, 0)])], across="x", label="l"))
    assert list(first) == [charts.LEFT, charts.TOP]
    assert list(last) == [charts.WIDTH - charts.RIGHT, charts.HEIGHT - charts.BOTTOM]
    assert middle == pytest.approx(((first[0] + last[0]) / 2, (first[1] + last[1]) / 2))


def test_lines_share_one_scale():
    lines = [Line("a", [(0, 0), (10, 1)]), Line("b", [(5, 0), (10, 10)], color=1)]
    (a, b) = points_of(chart(lines, across="x", label="l"))
    assert a[-1][1] == pytest.approx(b[0][1] + (b[-1][1] - b[0][1]) / 10, abs=0.1)
    assert b[0][0] == pytest.approx((a[0][0] + a[-1][0]) / 2, abs=0.1)


@pytest.mark.parametrize(
    "points",
    [[], [(1, 2)], [(1, float("nan")), (2, 1)], [(1, float("inf")), (2, 1)]],
    ids=["none", "one", "nan", "inf"],
)
def test_fewer_than_two_numbers_are_no_chart(points: list[tuple[float, float]]):
    assert chart([Line("a", points)], across="x", label="l") == ""


def test_a_constant_line_lies_in_the_middle():
    ((first, _),) = points_of(chart([Line("a", [(0, 3), (1, 3)])], across="x", label="l"))
    assert first[1] == (charts.TOP + charts.HEIGHT - charts.BOTTOM) / 2


def test_peaks_of_a_long_line_stay():
    values = [(float(x), 1.0) for x in range(100_000)]
    values[54_321] = (54_321.0, 9.0)
    (drawn,) = points_of(chart([Line("a", values)], across="x", label="l"))
    assert len(drawn) <= charts.MOST_POINTS
    assert min(y for _, y in drawn) == charts.TOP
    assert [x for x, _ in drawn] == sorted(x for x, _ in drawn)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 10, ["0", "2", "4", "6", "8", "10"]),
        (1.7, 5.9, ["2", "3", "4", "5"]),
        (0, 2_500_000, ["0", "500,000", "1M", "1.5M", "2M", "2.5M"]),
        (0.0001, 0.00025, ["0.0001", "0.00012", "0.00014", "0.00016", "0.00018", "0.0002", "0.00022", "0.00024"]),
        (
            0.0001,
            0.0005,
            ["0.0001", "0.00015", "0.0002", "0.00025", "0.0003", "0.00035", "0.0004", "0.00045", "0.0005"],
        ),
    ],
)
def test_ticks_are_round(low: float, high: float, labels: list[str]):
    svg = chart([Line("a", [(0, low), (1, high)])], across="x", label="l")
    assert re.findall(r'text-anchor="end">([^<]*)</text>', svg)[:-1] == labels


def test_marks_outside_are_left_out_and_names_are_escaped():
    marks = [Mark(5, "<five>"), Mark(11, "eleven")]
    svg = chart([Line("a & b", [(0, 0), (10, 1)])], across="x", label="l", marks=marks)
    assert re.findall(r"<title>(.*?)</title>", svg) == ["&lt;five&gt;", "a &amp; b"]
