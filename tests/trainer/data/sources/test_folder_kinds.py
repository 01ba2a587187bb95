"""Folders that are more than their files are named, and splits beside one another are told of."""

import json

import pytest

from tests.trainer.data.parquet_files import write_groups
from tpujob_trainer.data import DataConfig
from tpujob_trainer.data.manifest.listing import list_source
from tpujob_trainer.data.sources.folder_kinds import split_of
from tpujob_trainer.errors import ConfigurationError


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
        (
            ["dataset_info.json", "state.json", "data-00000-of-00001.arrow"],
            "a data set of save_to_disk .*load_from_disk",
        ),
        (["dataset_dict.json", "train/dataset_info.json", "train/state.json"], "a DatasetDict on disk .*SPLIT"),
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
