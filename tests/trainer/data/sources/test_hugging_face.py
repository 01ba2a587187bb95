"""Data sets laid out as on the Hugging Face hub: configurations, splits and files as their card says."""

import subprocess
import sys

import pytest

from tests.trainer.data.data_files import write_jsonl, write_parquet
from tests.trainer.data.formats.test_formats import rows_of
from tpujob_trainer.data import DataConfig, make_manifest, read_manifest, verify_unchanged, write_manifest
from tpujob_trainer.data.manifest.listing import is_pinned
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError

CARD = """---
configs:
- config_name: plain
  default: true
  data_files:
  - split: train
    path: plain/train-*.parquet
  - split: test
    path: plain/test.parquet
- config_name: lines
  data_files:
  - split: train
    path: lines/*.jsonl
---
A card.
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dataset")
    (folder / "README.md").write_text(CARD)
    (folder / "plain").mkdir()
    (folder / "lines").mkdir()
    for number in range(3):
        write_parquet(folder / "plain" / f"train-{number}.parquet", [f"train-{number}"])
    write_parquet(folder / "plain" / "test.parquet", ["test"])
    write_jsonl(folder / "lines" / "all.jsonl", ["line"])
    return folder


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ({}, ["train-0", "train-1", "train-2"]),
        ({"split": "test"}, ["test"]),
        ({"dataset_config": "lines"}, ["line"]),
    ],
    ids=["default", "split", "configuration"],
)
def test_card_says_which_files(dataset, which, expected):
    assert rows_of(make_manifest(DataConfig(dataset=str(dataset), **which))) == expected


def test_same_files_are_found_again(dataset, tmp_path):
    config = DataConfig(dataset=str(dataset))
    manifest = make_manifest(config)
    write_manifest(manifest, str(tmp_path))

    restored = read_manifest(str(tmp_path), config)

    assert restored is not None
    assert restored.fingerprint == manifest.fingerprint
    verify_unchanged(restored, config)


@pytest.mark.parametrize(
    ("which", "error", "message"),
    [
        ({"split": "dev"}, ConfigurationError, r"data\.split: 'dev' is not a split of .*; there are train, test$"),
        ({"dataset_config": "none"}, ConfigurationError, r"data\.datasetConfig: .*none"),
    ],
    ids=["split", "configuration"],
)
def test_what_is_not_there_is_told_by_field(dataset, which, error, message):
    with pytest.raises(error, match=message):
        make_manifest(DataConfig(dataset=str(dataset), **which))


def test_missing_dataset_is_told(tmp_path):
    with pytest.raises(NotFoundError, match=r"^spec\.trainer\.data\.dataset: '.*nowhere'"):
        make_manifest(DataConfig(dataset=str(tmp_path / "nowhere")))


def test_code_of_a_dataset_is_not_run(tmp_path):
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    write_parquet(tmp_path / "evil" / "a.parquet", ["row"])

    with pytest.raises(ConfigurationError, match=r"dataset: '.*evil' needs code of its own, which is not run"):
        make_manifest(DataConfig(dataset=str(tmp_path / "evil")))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("hf://datasets/org/name@" + "0a" * 20 + "/data", True),
        ("hf://datasets/org/name@main/data", False),
        ("hf://datasets/org/name", False),
        ("gs://bucket/x@" + "0a" * 20, False),
    ],
)
def test_only_a_commit_is_pinned(root, expected):
    assert is_pinned(root) is expected


def test_other_sources_do_not_import_datasets():
    code = "import sys, tpujob_trainer.data; sys.exit('datasets' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
