"""Rows are the same rows in files of every kind, whatever the units they are read in."""

import base64
import bz2
import gzip
import json
import lzma
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.data.data_files import (
    LINES_BY_CONTENT,
    READ_WHOLE,
    WRITERS,
    add_member,
    example,
    json_line,
    write_array_records,
    write_arrow_file,
    write_jsonl,
    write_text,
    write_tfrecords,
)
from tests.trainer.data.parquet_files import take
from tpujob_trainer.data import DataChangedError, DataConfig, LanePlan, Manifest, make_manifest
from tpujob_trainer.data.formats.examples import value_of_record
from tpujob_trainer.data.formats.webdataset import UNTAKEN
from tpujob_trainer.data.manifest import scan
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.storage.read_meter import METER
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError

ALL_WRITERS = {**WRITERS, "file.arrow": write_arrow_file, **LINES_BY_CONTENT, **READ_WHOLE}
TEXTS = [f"row-{row};" + 'é\t\\"x' * (row * 7 % 50) for row in range(300)]


def rows_of(manifest: Manifest) -> list[str | None]:
    """All rows, unit after unit."""
    reader = UnitReader(manifest)
    read = [reader.read(unit).column for unit in range(manifest.num_units)]
    return [row.decode() if isinstance(row, bytes) else row for column in read for row in column.to_pylist()]


@pytest.mark.parametrize("unit_bytes", [1 << 23, 3000, 1100])
@pytest.mark.parametrize("name", ALL_WRITERS)
def test_each_row_is_in_one_unit(tmp_path, name, unit_bytes):
    ALL_WRITERS[name](tmp_path / name, TEXTS)

    manifest = make_manifest(DataConfig(path=str(tmp_path), unit_bytes=unit_bytes))

    assert rows_of(manifest) == TEXTS
    if name not in READ_WHOLE and not name.endswith(("gz", "zst", "tar")):
        assert (manifest.num_units > 5) == (unit_bytes < 10_000 or name in ("a.parquet", "a.arrow", "file.arrow"))


@settings(max_examples=25)
@given(
    texts=st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1), min_size=1)
    .map(lambda texts: [f"x{text}" for text in texts]),
    name=st.sampled_from(["a.jsonl", "a.txt", "a.tfrecord-00000-of-00001", "a.array_record"]),
    unit_bytes=st.integers(1, 300),
)  # fmt: skip
def test_rows_of_any_length_are_in_one_unit(texts, name, unit_bytes):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "_LEAST_BYTES", 1)
        WRITERS[name](Path(folder) / name, texts)

        assert rows_of(make_manifest(DataConfig(path=folder, unit_bytes=unit_bytes))) == texts


def test_storage_makes_no_difference(tmp_path):
    import fsspec

    storage = fsspec.filesystem("memory")
    for name, write in WRITERS.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name / name, TEXTS)
        storage.put(str(tmp_path / name / name), f"/formats/{name}/{name}")
        local, remote = (
            make_manifest(DataConfig(path=path, unit_bytes=2000))
            for path in (str(tmp_path / name), f"memory://formats/{name}")
        )

        assert remote.fingerprint == local.fingerprint
        assert rows_of(remote) == TEXTS


def test_quick_reading_of_json_is_as_exact_as_the_slow_one(tmp_path):
    odd = [
        b'{"text": "plain"}',
        b'{"other": 1}',
        b'{"text": null}',
        b"",
        b'  {"text":"spaces"}  \r',
        b'{"text": "\\u00e9\\ud83d\\ude00"}',
        b'{"text": "twice"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(odd) + b"\n")
    (tmp_path / "b.jsonl").write_bytes(b"\n".join([*odd, b'{"text": 7}']) + b"\n")  # arrow gives up on this one

    manifest = make_manifest(DataConfig(path=str(tmp_path)))

    expected = ["plain", None, None, "spaces", "é😀", "twice"]
    assert rows_of(manifest) == [*expected, *expected, None]


def test_lines_that_are_no_json_are_broken(tmp_path):
    lines = [b'{"text": "good"}', b"{", b"[1]", b'{"text": 3}', b'{"text": "\xff"}', b'{"text": "\\ud800"}']
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))

    rows = UnitReader(make_manifest(DataConfig(path=str(tmp_path)))).read(0)

    assert {cause: rows.tolist() for cause, rows in rows.refused.items()} == {
        "malformed": [False, True, True, True, False, False]
    }
    assert rows.column.to_pylist()[:4] == [b"good", None, None, None]


def test_text_without_a_last_newline_and_with_windows_lines(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\r\n\r\n  \ntwo\nthree")

    assert rows_of(make_manifest(DataConfig(path=str(tmp_path)))) == ["one", "two", "three"]


@pytest.mark.parametrize(
    "options",
    ["group_size:1", "group_size:100", "group_size:7,zstd:3", "group_size:5,uncompressed", "group_size:9,brotli:2"],
)
def test_array_records_however_written(tmp_path, options):
    write_array_records(tmp_path / "a.array_record", [example(text=text) for text in TEXTS], options)

    assert rows_of(make_manifest(DataConfig(path=str(tmp_path), unit_bytes=2000))) == TEXTS


def test_array_record_larger_than_its_blocks(tmp_path):
    texts = [f"{row}" * 40_000 for row in range(10, 19)]
    write_array_records(tmp_path / "a.array_record", [example(text=t) for t in texts], "group_size:2,uncompressed")

    assert rows_of(make_manifest(DataConfig(path=str(tmp_path), unit_bytes=100_000))) == texts


def test_transposed_array_record_is_refused(tmp_path):
    write_array_records(tmp_path / "a.array_record", [example(text="x")], "group_size:2,transpose")

    with pytest.raises(ConfigurationError, match=r"a\.array_record' .*without transpose"):
        rows_of(make_manifest(DataConfig(path=str(tmp_path))))


@pytest.mark.parametrize("at", [0, 3, 9, 14, 40])
@pytest.mark.parametrize("unit_bytes", [1 << 20, 64])
def test_damaged_record_is_named_in_any_unit(tmp_path, monkeypatch, at, unit_bytes):
    monkeypatch.setattr(scan, "_LEAST_BYTES", 1)
    path = tmp_path / "a.tfrecord"
    write_tfrecords(path, [example(text=f"{row:020d}") for row in range(50)])
    one = path.stat().st_size // 50
    content = bytearray(path.read_bytes())
    content[20 * one + at] ^= 4
    path.write_bytes(bytes(content))
    manifest = make_manifest(DataConfig(path=str(tmp_path), unit_bytes=unit_bytes))

    with pytest.raises(ConfigurationError, match=rf"'a\.tfrecord': the record at byte {20 * one} is damaged"):
        rows_of(manifest)


def test_samples_of_tars_are_read_without_running_anything(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add_member(tar, "x/one.txt", b"first")
        add_member(tar, "x/one.pyd", b"cos\nsystem\n(S'false'\ntR.")
        add_member(tar, "x/two.json", b'{"text": "second"}')
        add_member(tar, "x/three.jsonl", b'{"text": "third"}\n{"text": "fourth"}\n')
        add_member(tar, "x/four.jpg", b"\xff\xd8")

    assert rows_of(make_manifest(DataConfig(path=str(tmp_path)))) == ["first", "second", "third", "fourth", None]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (example(other="x", text="yes"), b"yes"),
        (example(other="x"), None),
        (example(text=[1, -2, 300]), [1, -2, 300]),
        (b"", None),
        (b'{"text": "from json"}', "from json"),
    ],
    ids=["bytes", "not there", "numbers", "empty", "json"],
)
def test_value_of_a_record(record, expected):
    column = DataConfig(path="p").column()

    assert value_of_record(record, column) == expected


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.tar", "a.tar.zst"])
def test_cut_archive_is_named(tmp_path, name):
    WRITERS[name](tmp_path / name, TEXTS)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2 + 700])

    with pytest.raises(DataChangedError, match=f"{name}' cannot be"):
        rows_of(make_manifest(DataConfig(path=str(tmp_path))))


def test_packed_tar_with_damaged_content_is_named(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        add_member(tar, "one.txt", bytes(np.random.default_rng(0).integers(0, 256, 200_000, np.uint8)))
    content = bytearray((tmp_path / "a.tar.gz").read_bytes())
    content[50_000:150_000] = b"\xff" * 100_000
    (tmp_path / "a.tar.gz").write_bytes(content)

    with pytest.raises(DataChangedError, match=r"a\.tar\.gz' cannot be read as a tar: .*decompressing"):
        rows_of(make_manifest(DataConfig(path=str(tmp_path))))


@pytest.mark.parametrize("name", ALL_WRITERS)
def test_changed_file_is_named_before_it_is_used(tmp_path, name):
    ALL_WRITERS[name](tmp_path / name, TEXTS)
    manifest = make_manifest(DataConfig(path=str(tmp_path)))
    ALL_WRITERS[name](tmp_path / name, [*TEXTS[:-1], TEXTS[-1].replace("row-299", "row-298")])

    with pytest.raises(DataChangedError, match=f"'{name}' has changed since this run began"):
        rows_of(manifest)


def test_data_beside_its_description_is_found(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", TEXTS[:3])
    write_text(tmp_path / "README.txt", ["not data"])

    assert rows_of(make_manifest(DataConfig(path=str(tmp_path)))) == TEXTS[:3]
    assert rows_of(make_manifest(DataConfig(path=str(tmp_path), format="text"))) == ["not data"]


def test_file_of_any_name_is_read_as_the_format_says(tmp_path):
    (tmp_path / "dump").write_bytes(json_line("hello"))

    assert rows_of(make_manifest(DataConfig(path=str(tmp_path / "dump"), format="jsonl"))) == ["hello"]


def tfds_folder(folder: Path, file_format: str) -> None:
    """A version of a TFDS data set, described as TFDS does."""
    splits = []
    for split, shards in (("train", 3), ("test", 1)):
        lengths = []
        for shard in range(shards):
            texts = [f"{split}-{shard}-{row}" for row in range(5 + shard)]
            name = f"tiny-{split}.{file_format}-{shard:05d}-of-{shards:05d}"
            write = write_tfrecords if file_format == "tfrecord" else write_array_records
            write(folder / name, [example(text=text, label=[1]) for text in texts])
            lengths.append(str(len(texts)))
        splits.append({"name": split, "shardLengths": lengths, "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"})  # noqa: E501  # fmt: skip
    facts = {"name": "tiny", "version": "1.0.0", "fileFormat": file_format, "splits": splits}
    (folder / "dataset_info.json").write_text(json.dumps(facts))
    (folder / "features.json").write_text("{}")


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_folder_of_a_tfds_version(tmp_path, file_format):
    tfds_folder(tmp_path, file_format)

    train = rows_of(make_manifest(DataConfig(path=str(tmp_path))))
    test = rows_of(make_manifest(DataConfig(path=str(tmp_path), split="test")))

    assert train == [f"train-{shard}-{row}" for shard in range(3) for row in range(5 + shard)]
    assert test == [f"test-0-{row}" for row in range(5)]
    with pytest.raises(ConfigurationError, match=r"split: 'dev' is not a split .*there are train, test$"):
        make_manifest(DataConfig(path=str(tmp_path), split="dev"))


@pytest.mark.parametrize("name", ["a.jsonl", "a.array_record", "a.tfrecord-00000-of-00001"])
def test_token_ids_from_records(tmp_path, name):
    rows = [[1, 2, 3], [250, 4], [5]]
    if name == "a.jsonl":
        (tmp_path / name).write_text("\n".join(json.dumps({"ids": ids}) for ids in rows))
    else:
        write = write_array_records if "array" in name else write_tfrecords
        write(tmp_path / name, [example(ids=ids) for ids in rows])
    config = DataConfig(path=str(tmp_path), tokens_column="ids")

    manifest = make_manifest(config)
    batch = take(manifest, LanePlan(manifest.num_units, 1, 1, 0, epochs=1), 1, length=5)[0]

    assert sorted([*batch.inputs[0].tolist(), int(batch.targets[0][-1])]) == [1, 2, 3, 4, 5, 250]


def test_empty_files_are_nothing(tmp_path):
    for name in ("a.jsonl", "b.jsonl", "c.jsonl.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith("gz") else b"")
    write_jsonl(tmp_path / "b.jsonl", ["only"])

    assert rows_of(make_manifest(DataConfig(path=str(tmp_path)))) == ["only"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.tfrecord-00000-of-00001", "a.array_record"])
def test_process_reads_its_share_and_no_more(tmp_path, name):
    """An epoch of 8 MB in 32 units: each of four processes reads a quarter of the bytes, within 5 %."""
    random = np.random.default_rng(0)
    WRITERS[name](tmp_path / name, [base64.b64encode(random.bytes(2250)).decode() for _ in range(2700)])
    manifest = make_manifest(DataConfig(path=str(tmp_path), unit_bytes=1 << 19), batch_size=4)
    plan = LanePlan(manifest.num_units, 4, 4, seed=3)

    for lane in range(4):
        reader, before = UnitReader(manifest), METER.bytes_read
        units = [plan.unit(lane, 0, index) for index in range(plan.units_in(lane))]
        rows = sum(len(reader.read(unit).column) for unit in units)

        share = rows / 2700 * (tmp_path / name).stat().st_size
        assert 0.24 < rows / 2700 < 0.26
        # The file is checked besides: both of its ends.
        assert share * 0.95 < METER.bytes_read - before - (192 << 10) < share * 1.05


def of_tar(tmp_path, members, **more):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, content in members:
            add_member(tar, name, content)
    return UnitReader(make_manifest(DataConfig(path=str(tmp_path), **more))).read(0)


def test_hidden_members_are_left_out_and_counted(tmp_path, caplog):
    own = [(f"./d/{number}.txt", b"a text") for number in range(4)]
    mac = [(name.replace("d/", "d/._"), b"\0\5\x16\7") for name, _ in own]
    others = [(".DS_Store", b"x"), ("__MACOSX/._d", b"x"), (".git/a.txt", b"x")]

    rows = of_tar(tmp_path, [pair for both in zip(mac, own, strict=True) for pair in both] + others)

    assert rows.column.to_pylist() == [b"a text"] * 4
    assert not rows.refused
    (warning,) = (each.getMessage() for each in caplog.records)
    assert warning.startswith(
        "a.tar: 7 of 11 members are left out, since they are hidden: './d/._0.txt', './d/._1.txt'"
    )


def test_documents_whose_names_have_dots_are_counted_and_named(tmp_path, caplog):
    members = [(f"report.{number:05d}.txt", b"a text") for number in range(1500)]

    rows = of_tar(tmp_path, [("one.txt", b"fine"), *members, ("two.jpg", b"\xff\xd8")])

    assert {cause: int(refused.sum()) for cause, refused in rows.refused.items()} == {UNTAKEN.cause: 1500}
    assert rows.column.to_pylist() == [b"fine", *[None] * 1501]
    (warning,) = (each.getMessage() for each in caplog.records)
    assert warning.startswith(
        "a.tar: sample 'report' has '00000.txt', '00001.txt', '00002.txt' and 1,497 more, and none"
    )


def test_a_member_with_a_dotted_field_is_taken_by_its_whole_field(tmp_path):
    rows = of_tar(tmp_path, [("1.en.txt", b"yes"), ("1.de.txt", b"ja")], text_column="de.txt")
    assert (rows.column.to_pylist(), rows.refused) == ([b"ja"], {})


@pytest.mark.parametrize("second", ["1.TXT", "1.txt"])
def test_a_field_that_a_sample_has_twice_is_refused(tmp_path, second):
    with pytest.raises(
        ConfigurationError, match=rf"sample '1' has the field 'txt' twice, the second time in '{second}'"
    ):
        of_tar(tmp_path, [("1.txt", b"first"), (second, b"second")])


def of_file(path, content, **more):
    path.write_bytes(content)
    return UnitReader(make_manifest(DataConfig(path=str(path), **more))).read(0)


def test_a_table_is_read_by_column(tmp_path):
    table = b'\xef\xbb\xbflabel;text\r\n1;"hello; ""world"""\r\n0;"two\r\nlines"\n2;\n3;4;5\n6\n1;\xff\n'
    rows = of_file(tmp_path / "a.csv", table)
    assert rows.column.to_pylist() == [b'hello; "world"', b"two\r\nlines", b"", b"\xff", None, None]
    assert {cause: found.tolist() for cause, found in rows.refused.items()} == {"malformed": [False] * 4 + [True] * 2}
    both = of_file(tmp_path / "a.csv", b"a,b,c\n1,2,3\n", template="{{ a }}{{ c }}")
    assert both.column.to_pylist() == [b'{"a": "1", "c": "3"}']
    ids = of_file(tmp_path / "a.csv", b'ids\n"[1, 2]"\nx\n', tokens_column="ids")
    assert ids.column.to_pylist() == [[1, 2], None]


def test_a_table_without_the_column_names_those_that_it_has(tmp_path):
    (tmp_path / "a.tsv").write_text("id\treview\n1\tfine\n")
    with pytest.raises(
        ConfigurationError, match=r"textColumn: 'text' is not among the columns .* there are id, review"
    ):
        make_manifest(DataConfig(path=str(tmp_path)))


@pytest.mark.parametrize(
    "content",
    [
        b'[{"text": "one"},\n {"text": "two"}]',
        b'[{"text": "one"}, {"text": "two"}]\n',
        b'\xef\xbb\xbf [\n{"text": "one"}\n,{"text": "two"}\n]',
        b'{"text": "one"},\n{"text": "two"},\n',
        b'{\n "text": "one"\n}\n{\n "text": "two"\n}',
        b'{"text":\n"one"}{"text": "two"}',
    ],
)
def test_json_that_is_no_lines_is_read(tmp_path, content):
    assert of_file(tmp_path / "a.json", content).column.to_pylist() == [b"one", b"two"]


@pytest.mark.parametrize(
    "content",
    [
        b'{"text": "one"} garbage\n{"text": "two"}\n',
        b'[{"text": "one"}]\n{"text": "two"}\n',
        b'{"text": "on\n{"text": "two"}\n',
    ],
)
def test_lines_with_a_mistake_in_the_first_one_stay_lines(tmp_path, content):
    assert of_file(tmp_path / "a.json", content).column.to_pylist() == [None, b"two"]


@pytest.mark.parametrize("end", [b"", b",", b'{"text": "tw', b"] and more", b"\xff]"])
def test_an_array_that_is_cut_off_is_refused(tmp_path, end):
    with pytest.raises(ConfigurationError, match=r"a\.json' is JSON with a mistake"):
        of_file(tmp_path / "a.json", b'[{"text": "one"},' + end)


@pytest.mark.parametrize(("name", "compress"), [("bzip2", bz2.compress), ("xz", lzma.compress)])
def test_compressions_that_are_not_read_are_named(tmp_path, name, compress):
    with pytest.raises(ConfigurationError, match=rf"is compressed with {name}; write it with gzip or zstd"):
        of_file(tmp_path / "a.jsonl", compress(b'{"text": "one"}\n'))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.html", b"<!DOCTYPE html><p>text", "HTML or XML"),
        ("a.ipynb", b'{"cells": []}', "a notebook"),
        ("part-00000", b'{"text": "a row"}\n', "JSON"),
    ],
)
def test_what_has_structure_is_no_lines_of_text(tmp_path, caplog, name, content, reason):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "a.txt").write_text("a text")
    assert rows_of(make_manifest(DataConfig(path=str(tmp_path), format="text"))) == ["a text"]
    assert f"1 of 2 files are left out: {name} ({reason})" in caplog.text
    (tmp_path / "a.txt").unlink()
    if reason != "JSON":
        with pytest.raises(NotFoundError, match="none is text or ends with"):
            make_manifest(DataConfig(path=str(tmp_path)))
