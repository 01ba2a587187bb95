import numpy as np
import pytest

from tpujob_trainer.corpus.extract.batches import (
    Batch,
    bucket_lengths,
    part_sizes,
    plan_alone,
    plan_packed,
    shard_rows,
)


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


def _require_whole(made: list[Batch], lengths: np.ndarray) -> None:
    """Every row once, behind the one before it in its sequence, and within it."""
    rows = np.concatenate([batch.rows for batch in made]) if made else np.empty(0)
    assert sorted(rows.tolist()) == list(range(len(lengths)))
    for batch in made:
        assert batch.sequences.max() < batch.size
        ends = batch.starts + lengths[batch.rows]
        assert ends.max() <= batch.length
        for sequence in np.unique(batch.sequences):
            here = np.flatnonzero(batch.sequences == sequence)
            assert batch.slots[here].tolist() == list(range(len(here)))
            assert batch.starts[here].tolist() == [0, *ends[here][:-1]]


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
def test_batches_of_rows_alone(lengths, shapes):
    assert _shape(plan_alone(np.array(lengths, dtype=np.int64), (16, 32, 64), 2)) == shapes


@pytest.mark.parametrize("is_packed", [True, False])
def test_every_row_once_and_within_its_sequence(is_packed):
    chance = np.random.default_rng(0)
    for _ in range(200):
        lengths = chance.integers(1, 65, chance.integers(0, 60))
        buckets = (16, 32, 64)
        made = plan_packed(lengths, buckets, (1, 2, 4)) if is_packed else plan_alone(lengths, buckets, 4)
        _require_whole(made, lengths)
        assert all(batch.size == 4 * (64 // batch.length) or (is_packed and batch.length == 64) for batch in made)


def test_never_more_batches_than_unmoved():
    chance = np.random.default_rng(1)
    for _ in range(200):
        lengths = chance.integers(1, 65, chance.integers(1, 60))
        of_bucket = np.bincount(np.searchsorted([16, 32, 64], lengths), minlength=3)
        unmoved = sum(-(-count // size) for count, size in zip(of_bucket.tolist(), (16, 8, 4), strict=True))
        assert len(plan_alone(lengths, (16, 32, 64), 4)) <= unmoved


@pytest.mark.parametrize(
    ("lengths", "batches"),
    [
        # (length, size, rows)
        pytest.param([], [], id="no rows"),
        pytest.param([64] * 5, [(64, 4, 4), (64, 1, 1)], id="a rest in the smallest batch"),
        pytest.param([64] * 6, [(64, 4, 4), (64, 2, 2)], id="a rest of two"),
        pytest.param([64] * 7, [(64, 4, 4), (64, 4, 3)], id="a rest that needs a whole batch"),
        pytest.param([16] * 16, [(16, 16, 16)], id="short rows in short sequences"),
        pytest.param([16] * 3, [(64, 1, 3)], id="few short rows in a long one"),
        pytest.param([40, 24] * 4, [(64, 4, 8)], id="pairs that fill a sequence"),
        pytest.param([1] * 9, [(64, 4, 9)], id="four rows to a sequence of 64, and no more"),
    ],
)
def test_batches_of_packed_rows(lengths, batches):
    made = plan_packed(np.array(lengths, dtype=np.int64), (16, 32, 64), (1, 2, 4))
    assert [(batch.length, batch.size, len(batch.rows)) for batch in made] == batches


@pytest.mark.parametrize("kind", ["uniform", "short", "long-tailed"])
def test_packed_batches_are_full(kind):
    """Of the positions that are computed, those of the last batch included, at least nine tenths hold a token."""
    chance = np.random.default_rng(2)
    drawn = {
        "uniform": chance.uniform(1, 1025, 2000),
        "short": chance.uniform(32, 129, 4000),
        "long-tailed": 84 * chance.lognormal(0, 1, 4000),
    }[kind]
    lengths = np.clip(drawn.astype(np.int64), 16, 1024)
    made = plan_packed(lengths, (128, 256, 512, 1024), (2, 4, 8))
    assert lengths.sum() / sum(batch.size * batch.length for batch in made) > 0.9


@pytest.mark.parametrize(
    ("rows", "devices", "sizes"), [(8, 1, (2, 4, 8)), (8, 4, (4, 8)), (4, 4, (4,)), (6, 1, (3, 6)), (1, 1, (1,))]
)
def test_sizes_of_the_last_batch(rows, devices, sizes):
    assert part_sizes(rows, devices) == sizes


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
