"""Runs over data that ends: every row once in each pass, the rest filled up with what does not count."""

import collections
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.data.data_files import WRITERS
from tests.trainer.data.parquet_files import BYTES, manifest_of, raw, take, take_in_parts, write_groups, write_numbered
from tpujob_trainer.data import (
    BatchLoader,
    DataConfig,
    LanePlan,
    LocalBatch,
    evaluation_batches,
    has_ended,
    make_manifest,
    plan_lanes,
)

LAYOUTS = st.lists(st.lists(st.integers(0, 25), max_size=4), min_size=1, max_size=4).filter(
    lambda layout: sum(map(sum, layout)) >= 8
)


def until_the_end(manifest, plan, length, **how) -> list[LocalBatch]:
    with BatchLoader(manifest, BYTES, plan, length, rows=range(plan.batch_size), prefetch=0, **how) as loader:
        batches = [next(loader)]
        while batches[-1].batches_left:
            batches.append(next(loader))
    return batches


def counted_rows(batches, plan) -> collections.Counter[int]:
    """How often each row's whole text was predicted; what is padding does not count."""
    seen: collections.Counter[int] = collections.Counter()
    for lane in range(plan.lanes):
        rows = list(plan.rows_of(lane))
        inputs = np.concatenate([batch.inputs[rows].reshape(-1) for batch in batches])
        targets = np.concatenate([batch.targets[rows].reshape(-1) for batch in batches])
        counts = np.concatenate([batch.loss_mask[rows].reshape(-1) for batch in batches])
        for piece in np.split(np.arange(len(inputs)), np.flatnonzero(inputs == BYTES.bos))[1:]:
            predicted = BYTES.decode(targets[piece][counts[piece]].tolist())
            match = re.fullmatch(r"row-(\d+);(x*)", predicted)
            if match:
                assert len(match[2]) == int(match[1]) * 7 % 9
                seen[int(match[1])] += 1
    return seen


@settings(max_examples=15)
@given(
    layout=LAYOUTS,
    lanes=st.sampled_from([1, 2, 4]),
    length=st.sampled_from([3, 16, 50, 500]),
    epochs=st.integers(1, 3),
    spread=st.sampled_from([None, 1, 8]),
)
def test_each_row_is_learned_from_once_in_each_pass(layout, lanes, length, epochs, spread):
    with tempfile.TemporaryDirectory() as folder:
        total = write_numbered(Path(folder), layout)
        manifest = manifest_of(Path(folder), batch_size=spread)
        plan = LanePlan(manifest.num_units, 4, lanes if lanes <= manifest.num_units else 1, 3, epochs)
        batches = until_the_end(manifest, plan, length)

    assert counted_rows(batches, plan) == dict.fromkeys(range(total), epochs)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_numbered(folder, [[30, 20], [40], [2], [35]], width=8)
    return manifest_of(folder, batch_size=1)


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_end_does_not_depend_on_processes(data, processes):
    plan = LanePlan(data.num_units, 8, 8, 5, 1)
    alone = until_the_end(data, plan, 16)

    together = take_in_parts(data, plan, len(alone), processes=processes)

    assert raw(together) == raw(alone)
    assert [batch.batches_left for batch in together] == [batch.batches_left for batch in alone]


def test_end_is_told_two_batches_ahead(data):
    batches = until_the_end(data, LanePlan(data.num_units, 8, 8, 5, 1), 16)

    assert [batch.batches_left for batch in batches] == [2] * (len(batches) - 2) + [1, 0]
    assert batches[-1].loss_mask.any()


def test_nothing_comes_after_the_end(data):
    plan = LanePlan(data.num_units, 8, 4, 5, 1)
    count = len(until_the_end(data, plan, 16))

    after = take(data, plan, count + 3)[count:]

    assert not any(batch.loss_mask.any() for batch in after)
    assert has_ended(after[0].state, plan)
    assert not has_ended(take(data, plan, 1)[0].state, plan)
    assert not any(batch.segment_ids.any() for batch in after)
    assert all(batch.inputs.shape == (8, 16) for batch in after)


@pytest.mark.parametrize("stop", range(1, 12))
def test_resume_near_the_end(data, stop):
    plan = LanePlan(data.num_units, 8, 8, 5, 1)
    whole = take(data, plan, 14)

    assert raw(take(data, plan, 14 - stop, state=whole[stop - 1].state)) == raw(whole[stop:])


def test_padding_is_a_segment_of_its_own(tmp_path):
    write_groups(tmp_path / "a.parquet", [["abc"]])

    batch = take(manifest_of(tmp_path), LanePlan(1, 1, 1, 0, 1), 1, length=8)[0]

    assert batch.inputs[0].tolist() == [256, 97, 98, 99, 257, 0, 0, 0]
    assert batch.segment_ids[0].tolist() == [1, 1, 1, 1, 1, 0, 0, 0]
    assert batch.loss_mask[0].tolist() == [True] * 4 + [False] * 4


def test_documents_may_see_each_other(tmp_path):
    write_groups(tmp_path / "a.parquet", [["a"] * 40])
    config = DataConfig(path=str(tmp_path), block_cross_document_attention=False)
    manifest = make_manifest(config)
    open_plan = plan_lanes(manifest, config, batch_size=2, seed=0)
    closed = plan_lanes(manifest, DataConfig(path=str(tmp_path)), batch_size=2, seed=0)

    batch, other = (take(manifest, plan, 1, length=8)[0] for plan in (open_plan, closed))

    assert np.array_equal(batch.inputs, other.inputs)
    assert (batch.segment_ids == 1).all()
    assert batch.positions.tolist() == [list(range(8))] * 2
    assert batch.loss_mask.all()
    assert other.segment_ids.max() == 4
    assert not other.loss_mask.all()


@pytest.mark.parametrize("rows", [257, 3, 1])
@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.jsonl.gz"])
def test_any_amount_of_data_works_or_says_what_would(tmp_path, name, rows):
    """257 rows a batch; data for three lanes; one giant row group; a file that cannot be cut."""
    WRITERS[name](tmp_path / name, [f"row-{row};" for row in range(rows)])
    config = DataConfig(path=str(tmp_path))
    manifest = make_manifest(config, batch_size=257)

    plan = plan_lanes(manifest, config, batch_size=257, seed=0)
    batch = take(manifest, plan, 2)[-1]

    assert batch.inputs.shape == (257, 16)
    assert plan.lanes == (257 if manifest.num_units >= 257 else 1)


def evaluated(data, rows, batches=40) -> list[LocalBatch]:
    config = DataConfig(path="unused")
    opened = evaluation_batches(data, BYTES, config, batch_size=8, sequence_length=16, rows=rows, batches=batches)
    with opened() as found:
        return list(found)


def test_evaluation_is_the_same_each_time_and_anywhere(data):
    whole, again = evaluated(data, range(8)), evaluated(data, range(8))
    parts = [evaluated(data, [row]) for row in range(8)]

    assert raw(whole) == raw(again)
    assert len(whole) == 40
    assert all(batch.inputs.shape == (8, 16) for batch in whole)
    for part, row in zip(parts, range(8), strict=True):
        assert [batch.inputs.tolist() for batch in part] == [batch.inputs[[row]].tolist() for batch in whole]


def test_evaluation_sees_no_row_twice(data):
    batches = evaluated(data, range(8))

    assert not batches[-1].loss_mask.any()
    assert counted_rows(batches, LanePlan(data.num_units, 8, 8, 0, 1)) == dict.fromkeys(range(127), 1)
