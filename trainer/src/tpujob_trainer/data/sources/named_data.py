"""Data sets by name: which files belong to a split on the Hugging Face hub, and of a version of TFDS.

The `datasets` library reads the card and finds the files; their rows are then read like any others. Code that comes
with a data set is never run.

A version is described by dataset_info.json beside its files (tensorflow_datasets/core/dataset_info.py); rows are
tf.train.Example records in TFRecord or array record files.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tpujob_trainer.data.config import SourceConfig
from tpujob_trainer.data.sources.files import DataFile, DataRoot, describe, explained
from tpujob_trainer.storage.filesystems import located
from tpujob_trainer.storage.remote import reach, request
from tpujob_trainer.storage.retrying import cause_of
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError, message
from tpujob_trainer.values.json_object import kept_object


def dataset_files(config: SourceConfig, field: str) -> tuple[DataRoot, list[DataFile]]:
    """The files of one split of one configuration, sorted by path, below a root that names the commit.

    Raises:
        NotFoundError: there is no such data set, or it may not be read.
        ConfigurationError: there is no such configuration or split.
    """
    assert config.dataset is not None
    by_split = _data_files(config, field)
    wanted = config.split or "train"
    if wanted not in by_split:
        raise ConfigurationError(
            f"{field}.split: {wanted!r} is not a split of {config.dataset!r}; there are {', '.join(by_split)}"
        )
    urls = sorted(str(url) for url in by_split[wanted])
    filesystem, _ = located(urls[0])
    locations = [located(url)[1] for url in urls]
    root = DataRoot(filesystem, _common_folder(locations))
    with explained(config.dataset, f"{field}.dataset"):
        return root, sorted((describe(root, info) for info in _infos(root, locations)), key=lambda file: file.path)


def _data_files(config: SourceConfig, field: str) -> dict[str, list[Any]]:
    # Imported here: it takes a second, and few runs need it.
    import datasets
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub import constants
    from huggingface_hub.errors import OfflineModeIsEnabled

    def load() -> Any:
        try:
            return datasets.load_dataset_builder(config.dataset, config.dataset_config, revision=config.revision)
        except OfflineModeIsEnabled as error:
            raise NotFoundError(f"{field}.dataset: {config.dataset!r} cannot be read: {message(error)}") from error
        except Exception as error:
            # The library reports "not there" also for a busy hub: the hub's answer is in the context of its error.
            busy = next((cause for cause in _behind(error) if cause_of(cause) is not None), None)
            if busy is not None:
                raise busy from None
            raise

    if not constants.HF_HUB_OFFLINE and _is_on_hub(str(config.dataset)):
        reach(constants.ENDPOINT)
    try:
        builder = request(str(config.dataset), load)
    except DatasetNotFoundError as error:
        raise NotFoundError(
            f"{field}.dataset: {config.dataset!r} is not there, or may not be read: {message(error)}; "
            "check the spelling, and HF_TOKEN for a private one"
        ) from error
    except FileNotFoundError as error:
        raise NotFoundError(f"{field}.dataset: {config.dataset!r} cannot be read: {message(error)}") from error
    except RuntimeError as error:
        raise ConfigurationError(
            f"{field}.dataset: {config.dataset!r} needs code of its own, which is not run: {message(error)}; "
            "give the files of its data as path"
        ) from error
    except ValueError as error:
        raise ConfigurationError(f"{field}.datasetConfig: {config.dataset!r}: {message(error)}") from error
    found = builder.config.data_files
    if not found:
        raise ConfigurationError(f"{field}.dataset: {config.dataset!r} has no data files that can be read as they are")
    return {str(split): list(urls) for split, urls in found.items()}


def _is_on_hub(name: str) -> bool:
    """Whether a name is one of the hub, not that of a local folder, which the library accepts as well."""
    return re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", name) is not None and not Path(name).exists()


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    """The exception chain, root cause first."""
    found = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    yield from reversed(found)


def _common_folder(locations: list[str]) -> str:
    """The deepest folder that holds them all."""
    if len(locations) == 1:
        return str(PurePosixPath(locations[0]).parent)
    return os.path.commonpath(locations)


def _infos(root: DataRoot, locations: list[str]) -> list[dict[str, Any]]:
    """The entries of these files, from one listing of the storage."""
    listing = request(root.folder, lambda: root.filesystem.find(root.folder, detail=True))
    return [listing[location] for location in locations]


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
