"""Several sources: each with its share of every batch, its own epochs, and the same batches at any process count."""

import collections
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.data.data_files import write_jsonl
from tests.trainer.data.parquet_files import BYTES, raw, take, take_in_parts, write_numbered
from tpujob_trainer.data import (
    STATE_COLUMNS,
    BatchLoader,
    DataConfig,
    LanePlan,
    Manifest,
    batches_digest,
    describe_data,
    make_manifest,
    plan_lanes,
    read_manifest,
    require_same_data,
    verify_unchanged,
    write_manifest,
)
from tpujob_trainer.data.config import MixturePart
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.from_mapping import parse


def mixture(folder: Path, weights: list[float], *, rows: int = 60, batch: int = 8, **more) -> tuple[Manifest, LanePlan]:
    """Sources whose texts say which they are, the first of parquet, the others of JSON lines."""
    parts = []
    for number, weight in enumerate(weights):
        where = folder / f"source-{number}"
        where.mkdir(parents=True)
        if number == 0:
            write_numbered(where, [[rows // 2], [rows // 4, rows - rows // 2 - rows // 4]], width=20)
        else:
            texts = [f"{chr(96 + number)}-{row};" + "y" * (200 + row % 30) for row in range(rows)]
            write_jsonl(where / "all.jsonl", texts)
        parts.append(MixturePart(path=str(where), weight=weight))
    config = DataConfig(mixture=tuple(parts), unit_bytes=1024, **more)
    manifest = make_manifest(config, batch_size=batch)
    return manifest, plan_lanes(manifest, config, batch_size=batch, seed=5)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return mixture(tmp_path_factory.mktemp("three"), [6, 3, 1])


def shares(plan: LanePlan, batches: int) -> np.ndarray:
    """Rows of each source in each batch, [batches, sources]."""
    of_rows = [plan.sources_of_rows(batch) for batch in range(batches)]
    return np.array([np.bincount(rows, minlength=plan.num_sources) for rows in of_rows])


@settings(max_examples=30)
@given(
    weights=st.lists(st.floats(0.01, 1), min_size=2, max_size=6),
    batch=st.sampled_from([1, 7, 8, 64, 257]),
    seed=st.integers(0, 1000),
    begin=st.integers(0, 10**6),
)
def test_each_source_has_its_share_of_any_stretch(weights, batch, seed, begin):
    parts = tuple(weight / sum(weights) for weight in weights)
    units = tuple(range(at * 300, (at + 1) * 300) for at in range(len(parts)))
    plan = LanePlan(300 * len(parts), batch, 1, seed, None, units, parts)
    count = max(1, 1000 // batch)

    drawn = np.sum([np.bincount(plan.sources_of_rows(begin + at), minlength=len(parts)) for at in range(count)], axis=0)

    assert np.abs(drawn - np.array(parts) * count * batch).max() <= 8  # of about a thousand rows


def test_batch_holds_its_shares(three):
    _, plan = three
    wide = LanePlan(plan.num_units, 256, 1, 5, None, plan.source_units, plan.weights)

    counts = shares(wide, 200)

    assert np.abs(counts - 256 * np.array([0.6, 0.3, 0.1])).max() <= 4
    assert np.abs(counts.mean(axis=0) - 256 * np.array([0.6, 0.3, 0.1])).max() < 0.05


def test_row_has_tokens_of_its_source_alone(three):
    manifest, plan = three
    marks = {0: r"row-\d+;x*", 1: r"a-\d+;y*", 2: r"b-\d+;y*"}

    for number, batch in enumerate(take(manifest, plan, 20, length=40)):
        for row, source in zip(batch.inputs, plan.sources_of_rows(number), strict=True):
            pieces = BYTES.decode(row.tolist())
            inner = re.findall(r"(?:row|a|b)-\d+;[xy]*", pieces)
            assert all(re.fullmatch(marks[int(source)], piece) for piece in inner)


@settings(max_examples=8)
@given(
    weights=st.lists(st.sampled_from([0.1, 1, 2, 7]), min_size=2, max_size=4),
    lanes=st.sampled_from([1, 2, 4, 8]),
    steps=st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(1, 7)),
    rows=st.integers(40, 90),
)
def test_interrupted_run_equals_an_undisturbed_one(weights, lanes, steps, rows):
    with tempfile.TemporaryDirectory() as folder:
        manifest, plan = mixture(Path(folder), weights, rows=rows, lanes=lanes)
        undisturbed = take(manifest, plan, sum(steps), length=50)
        resumed, state = [], None
        for processes, count in zip((4, 8, 2), steps, strict=True):
            resumed += take_in_parts(manifest, plan, count, processes=processes, state=state, length=50)
            state = resumed[-1].state

    assert raw(resumed) == raw(undisturbed)
    assert batches_digest(resumed[-1].state) == batches_digest(undisturbed[-1].state)


def test_each_row_of_each_source_comes_once_in_its_epoch(tmp_path):
    manifest, plan = mixture(tmp_path, [3, 1], rows=40, lanes=2)
    total = 40
    streams: dict[tuple[int, int], list[int]] = collections.defaultdict(list)
    with BatchLoader(manifest, BYTES, plan, 24, rows=range(8), prefetch=0) as loader:
        number = 0
        while min(loader.epochs) < 2:
            batch = next(loader)
            for row, source in enumerate(plan.sources_of_rows(number).tolist()):
                streams[row // plan.rows_per_lane, source] += batch.inputs[row].tolist()
            number += 1
        assert loader.epochs[0] >= 2 * loader.epochs[1]  # a heavier source is gone through more often

    for source in range(2):
        seen: list[collections.Counter[str]] = [collections.Counter(), collections.Counter()]
        for lane in range(2):
            tokens = np.array(streams[lane, source])
            texts = [
                BYTES.decode(piece.tolist()) for piece in np.split(tokens, np.flatnonzero(tokens == BYTES.bos))[1:]
            ]
            for epoch in range(2):
                units = [plan.unit(lane, epoch, at, source) for at in range(plan.units_in(lane, source))]
                rows = sum(len(loader._reader.read(unit).column) for unit in units)
                seen[epoch].update(texts[:rows])
                texts = texts[rows:]
        assert all(len(of_epoch) == total == of_epoch.total() for of_epoch in seen)


def test_state_of_a_lane_is_small(three):
    manifest, plan = three
    state = take(manifest, plan, 3)[-1].state

    assert state.shape == (plan.lanes, 3 * len(STATE_COLUMNS))
    assert state[0].nbytes / plan.num_sources <= 64


def test_mixture_is_kept_beside_the_checkpoint(tmp_path):
    manifest, _ = mixture(tmp_path / "data", [2, 1])
    parts = tuple(MixturePart(path=str(tmp_path / "data" / f"source-{at}"), weight=2 - at) for at in range(2))
    config = DataConfig(mixture=parts, unit_bytes=1024)

    write_manifest(manifest, str(tmp_path / "run"))
    restored = read_manifest(str(tmp_path / "run"), config)

    assert restored is not None
    assert restored.fingerprint == manifest.fingerprint
    assert restored.source_units == manifest.source_units
    verify_unchanged(restored, config)
    with pytest.raises(ConfigurationError, match=r"there are 1 sources, but this run began with 2"):
        read_manifest(str(tmp_path / "run"), DataConfig(mixture=parts[:1]))


def test_other_weights_are_another_run(tmp_path):
    (manifest, plan), (_, other) = mixture(tmp_path / "a", [2, 1]), mixture(tmp_path / "b", [3, 1])
    described = [describe_data(manifest, BYTES, which, 16) for which in (plan, other)]

    with pytest.raises(ConfigurationError, match=r"data\.mixture: the weights was '0\.6.*' when this run began"):
        require_same_data(*described)


def test_lanes_of_all_sources_keep_the_budget(tmp_path):
    _, plan = mixture(tmp_path, [1, 1, 1, 1], buffer_bytes=2 * 4 * 2 * 1100)

    assert plan.lanes == 2


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({}, "data.path: required, and missing; or dataset or mixture"),
        ({"path": "a", "mixture": [{"path": "b"}]}, "data.mixture: excludes path"),
        ({"mixture": [{"path": "b", "wieght": 1}]}, r"data.mixture[0].wieght: unknown key; did you mean weight?"),
        ({"mixture": [{"path": "b"}, {"path": "c", "weight": 0}]}, "data.mixture[1].weight: 0 is out of range"),
        ({"mixture": []}, "data.mixture: [] is not a list; write its items below it"),
        ({"mixture": [{"path": "b"}], "epochs": 2}, "data.epochs: not for a mixture"),
        ({"path": "a", "messagesColumn": "m", "tokensColumn": "t"}, "data.tokensColumn: excludes messagesColumn"),
        ({"path": "a", "revision": "main"}, "data.revision: goes with dataset"),
    ],
    ids=["nothing", "two", "typo", "weight", "empty", "epochs", "columns", "revision"],
)  # fmt: skip
def test_contradictions_are_told_by_field(block, message):
    with pytest.raises(ConfigurationError) as refused:
        parse(DataConfig, block, "data")

    assert message in str(refused.value)
