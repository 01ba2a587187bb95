"""The table of our step beside MaxText's says what was measured."""

from dataclasses import replace

from benchmarks.maxtext_table import BEGIN, END, README, Figures, read_records, table

MINE = Figures(
    peak_bytes=10**10,
    operations=10**14,
    link_bytes=4 * 10**10,
    slice_bytes=0,
    waiting_gather_bytes=10**9,
    waiting_other_bytes=0,
    cpu_seconds=80.0,
)


def test_the_table_is_that_of_the_kept_figures() -> None:
    assert README.read_text().split(BEGIN)[1].split(END)[0] == table(read_records())


def test_what_is_lost_most_comes_first() -> None:
    theirs = replace(MINE, waiting_gather_bytes=0)
    records = {
        ("equal", "ours"): MINE,
        ("equal", "maxtext"): MINE,
        ("waits", "ours"): MINE,
        ("waits", "maxtext"): theirs,
        ("larger", "ours"): replace(MINE, peak_bytes=2 * 10**10),
        ("larger", "maxtext"): MINE,
        ("one side", "ours"): MINE,
    }
    rows = [line.split(" | ")[:2] for line in table(records).splitlines()[2:]]
    assert rows == [["| waits", "waiting inf"], ["| larger", "peak 2.00"], ["| equal", "nothing"]]
