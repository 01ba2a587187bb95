import numpy as np
import pytest

from tpujob_trainer.corpus.extract.batches import Batch, bucket_lengths, plan_batches, rows_per_unit, shard_rows


@pytest.mark.parametrize(
    ("length", "count", "buckets"),
    [
        pytest.param(512, 4, (64, 128, 256, 512), id="halves"),
        pytest.param(512, 1, (512,), id="one"),
        pytest.param(64, 8, (16, 32, 64), id="not below the least"),
        pytest.param(100, 4, (25, 50, 100), id="not below an odd length"),
        pytest.param(12, 4, (12,), id="shorter than the least"),
    ],
)
def test_lengths_of_buckets(length, count, buckets):
    assert bucket_lengths(length, count) == buckets


def _shape(batches: list[Batch]) -> list[tuple[int, int]]:
    return [(batch.length, len(batch.rows)) for batch in batches]


@pytest.mark.parametrize(
    ("lengths", "shapes"),
    [
        pytest.param([], [], id="no rows"),
        pytest.param([64] * 4, [(64, 2), (64, 2)], id="long rows"),
        pytest.param([32] * 4, [(32, 4)], id="short rows: twice as many"),
        pytest.param([16] * 8 + [64] * 2, [(16, 8), (64, 2)], id="full batches of both"),
        pytest.param([16, 64], [(64, 2)], id="one short row moves up into the room that is left"),
        pytest.param([16, 64, 64], [(32, 1), (64, 2)], id="no room above: a batch of its own"),
        pytest.param([16] * 9 + [64], [(16, 8), (64, 2)], id="the rest of a bucket moves up"),
        pytest.param([16] * 3, [(32, 3)], id="nothing above the next bucket"),
        pytest.param([1, 16, 17, 64], [(32, 3), (64, 1)], id="boundaries"),
    ],
)
def test_batches_of_a_unit(lengths, shapes):
    assert _shape(plan_batches(np.array(lengths, dtype=np.int64), (16, 32, 64), 2)) == shapes


def test_every_row_once_and_no_longer_than_its_batch():
    chance = np.random.default_rng(0)
    for _ in range(200):
        lengths = chance.integers(1, 65, chance.integers(0, 60))
        made = plan_batches(lengths, (16, 32, 64), 4)
        rows = np.concatenate([batch.rows for batch in made]) if made else np.empty(0)
        assert sorted(rows.tolist()) == list(range(len(lengths)))
        assert all(lengths[batch.rows].max() <= batch.length for batch in made)
        assert all(len(batch.rows) <= 4 * (64 // batch.length) for batch in made)


def test_never_more_batches_than_unmoved():
    chance = np.random.default_rng(1)
    for _ in range(200):
        lengths = chance.integers(1, 65, chance.integers(1, 60))
        of_bucket = np.bincount(np.searchsorted([16, 32, 64], lengths), minlength=3)
        unmoved = sum(-(-count // size) for count, size in zip(of_bucket.tolist(), (16, 8, 4), strict=True))
        assert len(plan_batches(lengths, (16, 32, 64), 4)) <= unmoved


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        pytest.param({"row_bytes": 1 << 20, "total_rows": None}, 512, id="fills one file"),
        pytest.param({"row_bytes": 1 << 20, "total_rows": 10**9}, 512, id="a large corpus"),
        pytest.param({"row_bytes": 14_680_064, "total_rows": 100_000}, 32, id="36 rows fill a file: whole batches"),
        pytest.param({"row_bytes": 28_672, "total_rows": 100_000}, 192, id="enough units for 32 workers"),
        pytest.param({"row_bytes": 1 << 30, "total_rows": 100}, 16, id="a batch at least"),
    ],
)
def test_rows_of_a_unit(arguments, rows):
    assert rows_per_unit(shard_bytes=512 << 20, batch=16, workers=32, **arguments) == rows


@pytest.mark.parametrize(
    ("sizes", "files"),
    [
        pytest.param([], [], id="no rows"),
        pytest.param([4, 4], [(0, 2)], id="one file"),
        pytest.param([4, 4, 4], [(0, 2), (2, 3)], id="two files"),
        pytest.param([20, 1, 20], [(0, 1), (1, 2), (2, 3)], id="a row larger than a file"),
    ],
)
def test_files_of_a_unit(sizes, files):
    made = shard_rows(np.array(sizes, dtype=np.int64), 10)
    assert [(each.start, each.stop) for each in made] == files
