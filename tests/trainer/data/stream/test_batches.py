"""Every batch is what it should be, whoever makes it and after any number of interruptions."""

import collections
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.data.parquet_files import (
    BYTES,
    manifest_of,
    raw,
    take,
    take_in_parts,
    write_groups,
    write_numbered,
)
from tpujob_trainer.data import (
    STATE_COLUMNS,
    BatchLoader,
    LanePlan,
    batches_digest,
    describe_data,
    require_same_data,
    state_shape,
)
from tpujob_trainer.values.errors import ConfigurationError

LAYOUTS = st.lists(st.lists(st.integers(0, 25), max_size=4), min_size=1, max_size=5).filter(
    lambda layout: sum(map(sum, layout)) >= 8
)


def documents_of(batches, lane_rows):
    """The texts in the rows of one lane, from the first batch on; the last may be cut short."""
    tokens = np.concatenate([batch.inputs[lane_rows].reshape(-1) for batch in batches])
    pieces = np.split(tokens, np.flatnonzero(tokens == BYTES.bos))
    return [BYTES.decode(piece.tolist()) for piece in pieces[1:]]


def row_number(text):
    match = re.match(r"row-(\d+);", text)
    assert match is not None
    return int(match[1])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rows = write_numbered(folder, [[30, 20], [40], [25, 25, 25], [35]], width=40)
    return manifest_of(folder, batch_size=2), rows


@pytest.mark.parametrize("lanes", [8, 4, 2, 1])
@pytest.mark.parametrize("processes", [2, 4, 8])
def test_batches_do_not_depend_on_processes(data, lanes, processes):
    manifest, _ = data
    plan = LanePlan(manifest.num_units, 8, lanes, seed=5)

    alone = take(manifest, plan, 12, length=33)
    together = take_in_parts(manifest, plan, 12, processes=processes, length=33)

    assert raw(together) == raw(alone)


@pytest.mark.parametrize("epochs", [None, 2])
def test_batches_made_ahead_are_those_made_one_by_one(data, epochs):
    """Made ahead, many at once, of as many units as have been read by then."""
    manifest, _ = data
    plan = LanePlan(manifest.num_units, 8, 4, seed=5, epochs=epochs)

    assert raw(take(manifest, plan, 60, prefetch=3)) == raw(take(manifest, plan, 60))


def test_rows_need_not_be_neighbours(data):
    manifest, _ = data
    plan = LanePlan(manifest.num_units, 8, 4, seed=5)
    rows = [0, 3, 6]

    whole, some = take(manifest, plan, 5), take(manifest, plan, 5, rows=rows)

    for all_rows, few_rows in zip(whole, some, strict=True):
        assert np.array_equal(all_rows.inputs[rows], few_rows.inputs)
        assert few_rows.lanes.tolist() == [0, 1, 3]
        assert np.array_equal(all_rows.state[few_rows.lanes], few_rows.state)


def resumed_twice(manifest, plan, steps, length):
    """Batches of a run that goes on with other numbers of processes after two interruptions."""
    batches, state = [], None
    for processes, count in zip((4, 8, 2), steps, strict=True):
        batches += take_in_parts(manifest, plan, count, processes=processes, state=state, length=length)
        state = batches[-1].state
    return batches


@settings(max_examples=25)
@given(
    layout=LAYOUTS,
    lanes=st.sampled_from([1, 2, 4, 8]),
    steps=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
    length=st.sampled_from([3, 16, 50]),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([None, 1, 8]),
)
def test_interrupted_run_equals_an_undisturbed_one(layout, lanes, steps, length, seed, spread):
    with tempfile.TemporaryDirectory() as folder:
        write_numbered(Path(folder), layout)
        manifest = manifest_of(Path(folder), batch_size=spread)
        plan = LanePlan(manifest.num_units, 8, lanes if lanes <= manifest.num_units else 1, seed)

        undisturbed = take(manifest, plan, sum(steps), length=length)
        resumed = resumed_twice(manifest, plan, steps, length)

    assert raw(resumed) == raw(undisturbed)
    assert batches_digest(resumed[-1].state) == batches_digest(undisturbed[-1].state)


@settings(max_examples=20)
@given(
    layout=LAYOUTS,
    lanes=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([None, 1, 8]),
)
def test_each_row_comes_once_in_each_epoch(layout, lanes, seed, spread):
    with tempfile.TemporaryDirectory() as folder:
        total = write_numbered(Path(folder), layout)
        manifest = manifest_of(Path(folder), batch_size=spread)
        plan = LanePlan(manifest.num_units, 4, lanes if lanes <= manifest.num_units else 1, seed)
        batches = take(manifest, plan, 40 + total, length=16)

    seen: list[collections.Counter[int]] = [collections.Counter() for _ in range(2)]
    for lane in range(plan.lanes):
        texts = documents_of(batches, list(plan.rows_of(lane)))
        begin = 0
        for epoch in range(2):
            in_epoch = int(sum(manifest.unit_count[plan.unit(lane, epoch, at)] for at in range(plan.units_in(lane))))
            assert begin + in_epoch < len(texts)
            seen[epoch].update(row_number(text) for text in texts[begin : begin + in_epoch])
            begin += in_epoch
    assert seen == [collections.Counter(range(total))] * 2


def test_epochs_have_other_orders(data):
    manifest, rows = data
    plan = LanePlan(manifest.num_units, 1, 1, seed=5)

    texts = documents_of(take(manifest, plan, 2 * rows, length=64), [0])

    first, second = texts[:rows], texts[rows : 2 * rows]
    assert sorted(first) == sorted(second)
    assert first != second


def test_each_token_is_a_target_once(data):
    manifest, _ = data
    plan = LanePlan(manifest.num_units, 4, 2, seed=1)

    batches = take(manifest, plan, 9, length=33)

    for lane in range(2):
        rows = list(plan.rows_of(lane))
        inputs = np.concatenate([batch.inputs[rows].reshape(-1) for batch in batches])
        targets = np.concatenate([batch.targets[rows].reshape(-1) for batch in batches])
        assert np.array_equal(inputs[1:], targets[:-1])


def test_beginning_of_a_document_is_no_target_of_another(data):
    manifest, _ = data
    plan = LanePlan(manifest.num_units, 4, 4, seed=1)

    for batch in take(manifest, plan, 9, length=33):
        assert np.array_equal(batch.loss_mask, batch.targets != BYTES.bos)


def test_other_seed_has_other_batches(data):
    manifest, _ = data
    one, other = (take(manifest, LanePlan(manifest.num_units, 4, 4, seed), 1, length=64)[0] for seed in (1, 2))

    assert not np.array_equal(one.inputs, other.inputs)


def test_state_is_small_and_belongs_to_its_batch(data):
    manifest, _ = data
    plan = LanePlan(manifest.num_units, 8, 4, seed=5)
    expected = [batch.state for batch in take(manifest, plan, 6)]

    with BatchLoader(manifest, BYTES, plan, 16, rows=range(8), prefetch=4) as loader:
        assert loader.state.shape == state_shape(plan)
        read_ahead = []
        for _ in range(6):
            read_ahead.append(next(loader).state)
            assert loader.state is read_ahead[-1]

    assert [state.tolist() for state in read_ahead] == [state.tolist() for state in expected]
    assert expected[0].dtype == np.int32
    assert expected[0][0].nbytes <= 64


def test_position_at_a_boundary_is_the_next_document(tmp_path):
    """Else a restart would read a document, or a whole unit, only to drop it."""
    write_groups(tmp_path / "a.parquet", [["x" * 14] * 10] * 5)
    manifest = manifest_of(tmp_path)

    batches = take(manifest, LanePlan(5, 1, 1, 0), 40, length=16)

    assert {batch.state[0, STATE_COLUMNS.index("token")] for batch in batches} == {0}


def test_digest_notices_one_other_token(tmp_path):
    texts = ["the same text"] * 40
    write_groups(tmp_path / "one" / "a.parquet", [texts])
    write_groups(tmp_path / "two" / "a.parquet", [[*texts[:7], "the some text", *texts[8:]]])
    digests = []
    for folder in ("one", "two"):
        manifest = manifest_of(tmp_path / folder)
        batches = take(manifest, LanePlan(manifest.num_units, 1, 1, 0), 60)
        digests.append(batches_digest(batches[-1].state))

    assert digests[0] != digests[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: np.repeat(state, 2, axis=0), r"has shape \(8, 8\), this run needs \(4, 8\): batchSize"),
        (lambda state: state + np.eye(1, 8, 0, dtype=np.int32), "belongs to other data, tokenizer, seed"),
        (lambda state: state + np.eye(4, 8, 5, dtype=np.int32)[::-1], "contradicts itself"),
    ],
    ids=["other batch size", "other run", "other batches"],
)
def test_state_of_another_run_is_refused(data, change, message):
    manifest, _ = data
    plan = LanePlan(manifest.num_units, 8, 4, seed=5)
    state = take(manifest, plan, 3)[-1].state

    with pytest.raises(ConfigurationError, match=message):
        take(manifest, plan, 1, state=change(state))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("seed", 6, r"spec\.trainer\.seed was 6 when this run began and is 5 now"),
        ("data", "abc", r"spec\.trainer\.data\.path: the data was 'abc'"),
        ("tokenizer", "abc", r"spec\.trainer\.data\.tokenizer: the tokenizer was 'abc'"),
        ("lanes", 2, r"spec\.trainer\.data\.lanes was 2"),
    ],
)
def test_changed_field_is_named(data, key, value, message):
    manifest, _ = data
    current = describe_data(manifest, BYTES, LanePlan(manifest.num_units, 8, 4, seed=5), 16)

    require_same_data(current, current)
    with pytest.raises(ConfigurationError, match=message):
        require_same_data({**current, key: value}, current)


def test_data_needs_no_jax():
    code = "import sys, tpujob_trainer.data; sys.exit('jax' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
