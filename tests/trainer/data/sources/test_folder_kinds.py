"""Folders that are more than their files are named, and splits beside one another are told of."""

import json

import pytest
from datasets import Dataset, DatasetDict

from tests.trainer.data.data_files import write_arrow
from tests.trainer.data.parquet_files import write_groups
from tpujob_trainer.data import DataConfig, make_manifest
from tpujob_trainer.data.manifest.listing import list_source
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.data.sources.folder_kinds import split_of
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError


def read(folder, **more):
    manifest = make_manifest(DataConfig(path=str(folder), **more))
    reader = UnitReader(manifest)
    rows = [row for unit in range(manifest.num_units) for row in reader.read(unit).column.to_pylist()]
    return [row.decode() if isinstance(row, bytes) else row for row in rows]


def paths(folder, **more):
    return [file.path for file in list_source(DataConfig(path=str(folder), **more), "spec.trainer.data").files]


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["_delta_log/00000000000000000000.json"], "a Delta table .*to_pyarrow_table"),
        (["deep/_delta_log/0.json"], "a Delta table"),
        ([".hoodie/hoodie.properties"], "a Hudi table .*Spark"),
        (["metadata/v1.metadata.json", "metadata/snap.avro"], "an Iceberg table .*pyiceberg"),
        (["_versions/1.manifest", "data/0.lance"], "a Lance data set .*lance.dataset"),
    ],
)
def test_a_folder_that_has_a_list_of_its_files_is_named(tmp_path, names, kind):
    write_groups(tmp_path / "part-0.parquet", [["deleted"]])
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps({}))
    with pytest.raises(ConfigurationError, match=f"^spec.trainer.data.path: .* is {kind}"):
        paths(tmp_path)


def test_names_that_are_like_those_of_tables_are_rows(tmp_path):
    for name in ("state.json", "metadata/a.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"text": "a row"}))
    assert paths(tmp_path) == ["metadata/a.json", "state.json"]


def test_rows_of_save_to_disk_are_those_that_its_list_names(tmp_path):
    rows = [[{"role": "user", "content": f"row {number}"}] for number in range(2500)]
    Dataset.from_dict({"id": range(2500), "messages": rows}).save_to_disk(tmp_path / "a", num_shards=2)
    write_arrow(tmp_path / "a/cache-of-map.arrow", ["not a row"])
    assert read(tmp_path / "a", messages_column="messages") == rows
    assert read(tmp_path / "a", messages_column="messages", max_rows=1100) == rows[:1100]

    (tmp_path / "a/data-00001-of-00002.arrow").unlink()
    with pytest.raises(
        NotFoundError, match=r"state\.json lists 2 files, but 'data-00001-of-00002\.arrow' is not there"
    ):
        paths(tmp_path / "a")


def test_rows_of_a_dataset_dict_are_those_of_a_split(tmp_path, caplog):
    def one(text):
        return Dataset.from_dict({"text": [text]})

    DatasetDict({"train": one("train"), "test_sft": one("test")}).save_to_disk(tmp_path / "both")
    assert read(tmp_path / "both", split="test_sft") == ["test"]
    assert not caplog.records
    assert read(tmp_path / "both") == ["train"]
    assert "of the splits test_sft, train, train is read; split chooses" in caplog.text
    with pytest.raises(ConfigurationError, match=r"split: 'test' is not a split .*; there are test_sft, train"):
        paths(tmp_path / "both", split="test")
    DatasetDict({"all": one("all")}).save_to_disk(tmp_path / "one")
    assert read(tmp_path / "one") == ["all"]


@pytest.mark.parametrize("name", ["{}/0.parquet", "data/{}-00000-of-00001.parquet", "{}.parquet"])
def test_split_chooses_among_splits_beside_one_another(tmp_path, caplog, name):
    for split in ("train", "test", "validation"):
        write_groups(tmp_path / name.format(split), [[split]])

    assert len(paths(tmp_path)) == 3
    assert "test, train, validation are read together; split chooses one of them" in caplog.text
    caplog.clear()
    assert paths(tmp_path, split="train") == [name.format("train")]
    assert paths(tmp_path, split="val") == [name.format("validation")]
    assert not caplog.records
    with pytest.raises(
        ConfigurationError, match=r"split: 'fall' is not a split of .*; there are test, train, validation"
    ):
        paths(tmp_path, split="fall")


@pytest.mark.parametrize(
    ("path", "split"),
    [("a/Train/x.txt", "train"), ("dev.jsonl", "validation"), ("training-data.txt", "train"), ("latest.txt", None)],
)
def test_split_of_a_path(path, split):
    assert split_of(path) == split
