"""The first rows of a source are the same rows whatever the limit, the format and the batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.data.data_files import WRITERS
from tests.trainer.data.parquet_files import BYTES
from tpujob_trainer.data import BatchLoader, DataConfig, make_manifest, plan_lanes, read_manifest, write_manifest
from tpujob_trainer.data.manifest.listing import _counted, list_source, up_to
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.values.errors import ConfigurationError

TEXTS = [f"row {number} " + "x" * (number % 37) for number in range(1000)]
CUT = [name for name in WRITERS if not name.endswith((".gz", ".zst", ".tar"))]


def rows_of(config, batch_size=4):
    manifest = make_manifest(config, batch_size=batch_size)
    reader = UnitReader(manifest)
    columns = [reader.read(number).column.to_pylist() for number in range(manifest.num_units)]
    return [text.decode() if isinstance(text, bytes) else text for column in columns for text in column]


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("limit", [1, 10, 333, 1000, 5000])
def test_limit_is_a_prefix(tmp_path, name, limit):
    half = len(TEXTS) // 2
    for part, texts in (("0-", TEXTS[:half]), ("1-", TEXTS[half:])):
        WRITERS[name](tmp_path / f"{part}{name}", texts)

    assert rows_of(DataConfig(path=str(tmp_path), max_rows=limit)) == TEXTS[:limit]
    assert rows_of(DataConfig(path=str(tmp_path), max_rows=limit, unit_bytes=512)) == TEXTS[:limit]


def test_only_these_rows_are_trained_on(tmp_path):
    WRITERS["a.parquet"](tmp_path / "a.parquet", TEXTS)
    config = DataConfig(path=str(tmp_path), max_rows=10, epochs=1)
    manifest = make_manifest(config, batch_size=2)
    plan = plan_lanes(manifest, config, batch_size=2, seed=0)

    with BatchLoader(manifest, BYTES, plan, 64, rows=[0, 1], prefetch=0) as loader:
        while next(loader).batches_left:
            pass

    assert loader.counts.used == 10
    assert manifest.num_rows == 10


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.tar"])
def test_file_that_is_read_whole_is_refused(tmp_path, name):
    WRITERS[name](tmp_path / name, TEXTS)

    with pytest.raises(ConfigurationError, match=r"data\.maxRows: '.*' can only be read whole; give files"):
        make_manifest(DataConfig(path=str(tmp_path), max_rows=10))


def test_another_limit_is_another_run(tmp_path):
    WRITERS["a.parquet"](tmp_path / "a.parquet", TEXTS)
    config = DataConfig(path=str(tmp_path / "a.parquet"), max_rows=10)
    write_manifest(make_manifest(config), str(tmp_path / "run"))

    assert make_manifest(config).fingerprint != make_manifest(DataConfig(path=str(tmp_path))).fingerprint
    with pytest.raises(ConfigurationError, match=r"data\.maxRows: 'all', but this run began with '10'"):
        read_manifest(str(tmp_path / "run"), DataConfig(path=str(tmp_path / "a.parquet")))


def test_limit_may_be_at_the_end_of_any_part(tmp_path):
    """Of lines, whose parts are cut by bytes, and of the last row of a file."""
    for part, texts in (("0-", TEXTS[:20]), ("1-", TEXTS[20:40])):
        WRITERS["a.jsonl"](tmp_path / f"{part}a.jsonl", texts)

    for limit in range(1, 41):
        config = DataConfig(path=str(tmp_path), max_rows=limit, unit_bytes=64)
        assert rows_of(config) == TEXTS[:limit]
        assert make_manifest(config).paths == ("0-a.jsonl", "1-a.jsonl")[: 1 + (limit > 20)]


@given(rows=st.lists(st.integers(0, 4), min_size=1, max_size=12), wanted=st.integers(1, 30), piece=st.integers(1, 5))
def test_fewest_elements_that_hold_the_rows_are_taken(rows, wanted, piece):
    found = _counted(lambda first, size: sum(rows[first : first + size]), len(rows), wanted, piece)

    fewest = next((count for count in range(1, len(rows) + 1) if sum(rows[:count]) >= wanted), None)
    assert found == ((len(rows), sum(rows)) if fewest is None else (fewest, wanted))


@pytest.mark.parametrize(
    ("last", "kept"),
    [
        ("a.jsonl", ["a.jsonl"]),
        ("b.jsonl", ["a.jsonl", "b.jsonl"]),
        ("bb.jsonl", ["a.jsonl", "b.jsonl"]),
        ("0", []),
    ],
)
def test_files_after_the_last_one_are_left_out(tmp_path, last, kept):
    names = ("a.jsonl", "b.jsonl", "c.jsonl")
    for name in names:
        (tmp_path / name).write_text("{}\n")
    (field, source), *_ = DataConfig(path=str(tmp_path)).sources()
    listing = list_source(source, field)

    assert [file.path for file in listing.files] == list(names)
    assert [file.path for file in up_to(listing, last).files] == kept
