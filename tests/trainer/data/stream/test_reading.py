"""What is read, by whom, and what becomes of rows that are no use."""

import collections

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.trainer.data.parquet_files import (
    BYTES,
    manifest_of,
    raw,
    take,
    write_groups,
    write_numbered,
)
from tpujob_trainer.data import BatchLoader, DataConfig, LanePlan, make_manifest
from tpujob_trainer.data.formats import parquet
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.data.sources.files import DataRoot, open_root
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError


class CountedFile:
    """A file that counts the bytes read of it."""

    def __init__(self, file, count):
        self._file, self._count = file, count
        self.closed = False

    def read(self, size=-1):
        data = self._file.read(size)
        self._count["bytes"] += len(data)
        return data

    def close(self):
        self.closed = True
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getattr__(self, name):
        return getattr(self._file, name)


class CountingReader(UnitReader):
    """Reads units, and counts them and their bytes."""

    def __init__(self, manifest):
        self.bytes: collections.Counter[str] = collections.Counter()
        self.units: collections.Counter[int] = collections.Counter()
        root = open_root(manifest.sources[0].root)
        counted = type("CountedRoot", (DataRoot,), {"open": lambda _, *args: CountedFile(root.open(*args), self.bytes)})
        super().__init__(manifest, [counted(root.filesystem, root.folder)])

    def read(self, number):
        self.units[number] += 1
        return super().read(number)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_process_reads_its_share_and_no_more(tmp_path, processes):
    for number in range(32):
        write_groups(tmp_path / f"{number:02d}.parquet", [[f"{row:06d}" * 5000 for row in range(10)]])
    manifest = manifest_of(tmp_path)
    plan = LanePlan(manifest.num_units, 4, 4, seed=3)
    steps = 32 * 10 * 30_000 // (4 * 1000) - 12  # almost an epoch: the last unit of each lane is begun

    shares = []
    for process in range(processes):
        reader = CountingReader(manifest)
        rows = range(4)[process * 4 // processes : (process + 1) * 4 // processes]
        take(manifest, plan, steps, rows=rows, length=1000, reader=reader)
        shares.append(reader)

    files = sum(int(size) for size in manifest.sizes)
    assert sum((share.units for share in shares), collections.Counter()) == dict.fromkeys(range(32), 1)
    for share in shares:
        # Footers are read besides: at most 64 KiB of each file opened.
        assert len(share.units) == 32 // processes
        assert share.bytes["bytes"] <= files / processes + len(share.units) * (64 << 10)


def test_resume_reads_at_most_one_unit_of_each_lane_again(tmp_path):
    write_numbered(tmp_path, [[20] * 40])
    manifest = manifest_of(tmp_path)
    plan = LanePlan(manifest.num_units, 4, 4, seed=3)
    undisturbed, before, after = (CountingReader(manifest) for _ in range(3))

    take(manifest, plan, 60, reader=undisturbed)
    state = take(manifest, plan, 25, reader=before)[-1].state
    take(manifest, plan, 35, state=state, reader=after)

    again = (before.units + after.units) - undisturbed.units
    assert undisturbed.units.total() > 8
    assert again.total() <= 4


def test_other_columns_are_not_read(tmp_path):
    heavy = {"text": ["short"] * 1000, "other": [f"{row:05d}" * 400 for row in range(1000)]}
    pq.write_table(pa.table(heavy), tmp_path / "a.parquet", compression="none", use_dictionary=False)
    manifest = manifest_of(tmp_path)
    reader = CountingReader(manifest)

    take(manifest, LanePlan(1, 1, 1, 0), 3, reader=reader)

    assert (tmp_path / "a.parquet").stat().st_size > 1_900_000
    assert reader.bytes["bytes"] < 150_000


@pytest.mark.parametrize("shared", [1 << 30, 0], ids=["kept", "streamed"])
def test_parts_of_a_row_group_are_its_rows(tmp_path, monkeypatch, shared):
    texts = [f"row-{row}" for row in range(20_000)]
    write_groups(tmp_path / "a.parquet", [texts])
    monkeypatch.setattr(parquet, "_SHARED_GROUP_BYTES", shared)
    manifest = manifest_of(tmp_path, unit_bytes=20_000)
    reader = UnitReader(manifest)

    read = [text for unit in range(manifest.num_units) for text in reader.read(unit).column.to_pylist()]

    assert manifest.num_units > 5
    assert read == texts


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_text_of_any_kind_is_the_same_text(tmp_path, kind):
    texts = [f"row-{row % 7}" for row in range(50)]
    column = pa.array(texts).cast(pa.binary() if kind == pa.binary() else pa.string())
    column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    write_groups(tmp_path / "plain" / "a.parquet", [texts])

    read, plain = (
        take(manifest_of(folder), LanePlan(1, 1, 1, 0), 5)[-1].inputs.tolist()
        for folder in (tmp_path / "a.parquet", tmp_path / "plain" / "a.parquet")
    )

    assert read == plain


def test_useless_rows_are_left_out_and_counted(tmp_path):
    write_groups(tmp_path / "a.parquet", [[b"good", None, b"", b"\xff\xfe", b"fine", None]])
    manifest = manifest_of(tmp_path)

    with BatchLoader(manifest, BYTES, LanePlan(1, 1, 1, 0), 12, rows=[0], prefetch=0) as loader:
        text = BYTES.decode(next(loader).inputs[0].tolist())

    assert sorted((text[:4], text[4:8])) == ["fine", "good"]
    counts = loader.counts
    epochs = counts.used // 2
    assert counts.by_cause == {"null": 2 * epochs, "empty": epochs, "not UTF-8": epochs}


def test_resume_steps_over_useless_rows(tmp_path):
    texts = [None if row % 3 else f"row-{row}" for row in range(60)]
    write_groups(tmp_path / "a.parquet", [texts[:30], texts[30:]])
    manifest = manifest_of(tmp_path)
    plan = LanePlan(2, 2, 2, 4)

    whole = take(manifest, plan, 20)
    for stop in range(1, 19):
        assert raw(take(manifest, plan, 1, state=whole[stop - 1].state)) == raw(whole[stop : stop + 1])


def test_data_without_any_text_is_refused(tmp_path):
    write_groups(tmp_path / "a.parquet", [[None, ""], ["", ""]])
    manifest = manifest_of(tmp_path)

    with pytest.raises(ConfigurationError, match=r"no usable text in 2 units .*3 empty: .*1 null: a.parquet row 0"):
        take(manifest, LanePlan(2, 1, 1, 0), 1)


def test_document_longer_than_many_windows(tmp_path):
    text = "".join(chr(97 + number % 26) for number in range(100_000))
    write_groups(tmp_path / "a.parquet", [[text]])
    manifest = manifest_of(tmp_path)

    batches = take(manifest, LanePlan(1, 1, 1, 0), 6, length=16_384)

    tokens = [token for batch in batches for token in batch.inputs[0].tolist()]
    assert BYTES.decode(tokens) == text[: 6 * 16_384 - 1]


@pytest.mark.parametrize(
    ("now", "how"), [("much longer", "its size was"), ("eno", "its content is another one")], ids=["size", "content"]
)
def test_file_changed_under_the_run_is_named(tmp_path, now, how):
    for number in range(2):
        write_groups(tmp_path / f"{number}.parquet", [["one"] * 30])
    manifest = manifest_of(tmp_path)
    write_groups(tmp_path / "1.parquet", [[now] * 30])

    with pytest.raises(NotFoundError, match=rf"'1\.parquet' has changed since this run began: {how}"):
        take(manifest, LanePlan(2, 2, 2, 0), 1)


@pytest.mark.parametrize("prefetch", [0, 2], ids=["here", "in a thread"])
def test_file_gone_under_the_run_is_named(tmp_path, prefetch):
    write_numbered(tmp_path, [[30], [30]])
    manifest = manifest_of(tmp_path)
    (tmp_path / "part-0001.parquet").unlink()

    with pytest.raises(NotFoundError, match=r"part-0001\.parquet' is not there"):
        take(manifest, LanePlan(2, 2, 2, 0), 1, prefetch=prefetch)


@pytest.fixture
def bucket(tmp_path):
    """Data in storage that is not a disk: fsspec's memory, and the same on disk."""
    write_numbered(tmp_path, [[30], [30, 20]])
    storage = fsspec.filesystem("memory")
    storage.put(f"{tmp_path}/", "/bucket/data/", recursive=True)
    yield tmp_path, storage
    storage.rm("/bucket", recursive=True)


def test_remote_data_is_the_same_data(bucket):
    folder, _ = bucket
    remote = make_manifest(DataConfig(path="memory://bucket/data/*.parquet"))
    local = manifest_of(folder)

    assert remote.fingerprint == local.fingerprint
    assert remote.sources[0].root == "memory:///bucket/data"
    assert raw(take(remote, LanePlan(3, 3, 3, 0), 20, prefetch=2)) == raw(take(local, LanePlan(3, 3, 3, 0), 20))


def test_remote_file_changed_under_the_run_is_named(bucket):
    _, storage = bucket
    manifest = make_manifest(DataConfig(path="memory://bucket/data"))
    storage.pipe_file("/bucket/data/part-0000.parquet", b"PAR1 and something else PAR1")

    with pytest.raises(NotFoundError, match=r"'part-0000\.parquet' has changed .* its size was \d+ bytes, now 28"):
        take(manifest, LanePlan(3, 3, 3, 0), 1)


def test_single_file_trains_a_wide_batch(tmp_path):
    write_groups(tmp_path / "a.parquet", [["hello world"] * 257])
    config = DataConfig(path=str(tmp_path / "a.parquet"))
    manifest = make_manifest(config, batch_size=32)

    batches = take(manifest, LanePlan(manifest.num_units, 32, 32, 0), 3)

    assert batches[0].inputs.shape == (32, 16)


@pytest.mark.parametrize("different", [3, 500], ids=["hardly any other", "partly"])
def test_units_of_texts_that_repeat_are_no_larger_than_others(tmp_path, different):
    """Parquet keeps a text once for all rows that have it, and tells the size of that."""
    write_groups(tmp_path / "a.parquet", [[f"{row % different:04d}" + "x" * 996 for row in range(5000)]])

    manifest = manifest_of(tmp_path, unit_bytes=1 << 20)

    assert (manifest.unit_count <= 1100).all()
    assert 4.9e6 < manifest.unit_bytes.sum() < 5.3e6


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_blank_lines_alone_are_named(tmp_path, name):
    (tmp_path / name).write_text("\n\n\n")
    manifest = make_manifest(DataConfig(path=str(tmp_path)))
    with pytest.raises(ConfigurationError, match=rf"data\.path: no rows in 1 units of data, such as {name} row 0"):
        take(manifest, LanePlan(1, 1, 1, 0), 1)
