"""The folder of one version of a TFDS data set: which of its files belong to a split.

A version is described by dataset_info.json beside its files (tensorflow_datasets/core/dataset_info.py); rows are
tf.train.Example records in TFRecord or array record files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tpujob_trainer.data.sources.files import DataFile, DataRoot
from tpujob_trainer.errors import ConfigurationError, NotFoundError
from tpujob_trainer.parsing.json_object import kept_object

_INFO = "dataset_info.json"
_FORMATS = {"tfrecord": "tfrecord", "array_record": "arrayrecord"}


@dataclass(frozen=True)
class TfdsVersion:
    """The facts in dataset_info.json, and the files beside it."""

    name: str
    format: str
    splits: dict[str, dict[str, Any]]
    file_format: str
    files: dict[str, DataFile]

    def files_of(self, split: str | None, field: str) -> list[DataFile]:
        """The files of a split (None: train), sorted by path.

        Raises:
            ConfigurationError: there is no such split.
            NotFoundError: a file of it is missing.
        """
        wanted = split or "train"
        if wanted not in self.splits:
            raise ConfigurationError(
                f"{field}.split: {wanted!r} is not a split of this TFDS data set; there are {', '.join(self.splits)}"
            )
        names = self._names(wanted, self.splits[wanted])
        missing = [name for name in names if name not in self.files]
        if missing:
            raise NotFoundError(
                f"{field}.path: {_INFO} tells of {len(names)} files of split {wanted!r}, but {missing[0]!r} and "
                f"{len(missing) - 1} more are not there; copy the folder again"
            )
        return [self.files[name] for name in sorted(names)]

    def _names(self, split: str, facts: dict[str, Any]) -> list[str]:
        template = facts.get("filepathTemplate") or "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        shards = len(facts.get("shardLengths") or [1])
        return [
            template.format(
                DATASET=self.name,
                SPLIT=split,
                FILEFORMAT=self.file_format,
                SHARD_INDEX=f"{number:05d}",
                NUM_SHARDS=f"{shards:05d}",
                SHARD_X_OF_Y=f"{number:05d}-of-{shards:05d}",
            )
            for number in range(shards)
        ]


def find_tfds_version(root: DataRoot, files: list[DataFile]) -> TfdsVersion | None:
    """The TFDS version that the files at a root belong to, by their dataset_info.json; None: there is none.

    Raises:
        ConfigurationError: its files have a format that is not supported.
    """
    info = next((file for file in files if file.path == _INFO), None)
    if info is None:
        return None
    with root.open(info.path, info.size) as file:
        facts = kept_object(file.read(), f"spec.trainer.data.path: {root.locate(_INFO)}", "copy it anew")
    if isinstance(facts.get("splits"), dict):
        return None  # of the `datasets` library, whose files have the same name
    file_format = facts.get("fileFormat", "tfrecord")
    if file_format not in _FORMATS:
        raise ConfigurationError(
            f"spec.trainer.data.path: {root.locate(_INFO)!r} says fileFormat {file_format!r}; "
            f"these can be read: {', '.join(_FORMATS)}"
        )
    splits = {split["name"]: split for split in facts.get("splits", [])}
    by_path = {file.path: file for file in files}
    return TfdsVersion(facts.get("name", ""), _FORMATS[file_format], splits, file_format, by_path)
