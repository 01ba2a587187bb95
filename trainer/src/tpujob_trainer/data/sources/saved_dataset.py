"""Folders that `save_to_disk` of the `datasets` library writes: which of their files hold the rows of a split.

A state.json beside the files lists them; files that are not listed, such as cache-*.arrow, are none of its rows. A
DatasetDict has a folder for each split, and a dataset_dict.json that names them.
"""

import logging

from tpujob_trainer.data.sources.files import DataFile, DataRoot
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError
from tpujob_trainer.values.json_object import kept_object

logger = logging.getLogger(__name__)

_DICT, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"


def saved_files(
    root: DataRoot, files: list[DataFile], split: str | None, field: str
) -> tuple[list[DataFile], bool] | None:
    """The listed files of saved data sets, and whether they are those of one split; None: nothing was saved here.

    Raises:
        ConfigurationError: a DatasetDict has no such split.
        NotFoundError: a listed file is missing.
    """
    by_path = {file.path: file for file in files}
    folders = [path.removesuffix(_STATE) for path in by_path if path.rpartition("/")[2] == _STATE]
    folders = [folder for folder in folders if folder + _INFO in by_path]
    if not folders:
        return None
    is_dict = _DICT in by_path
    if is_dict:
        splits = [folder.rstrip("/") for folder in folders]
        wanted = split or ("train" if len(splits) > 1 else splits[0])
        if wanted not in splits:
            raise ConfigurationError(
                f"{field}.split: {wanted!r} is not a split of this DatasetDict; there are {', '.join(splits)}"
            )
        if split is None and len(splits) > 1:
            logger.warning("%s: of the splits %s, train is read; split chooses", root.url, ", ".join(splits))
        folders = [f"{wanted}/"]
    listed = [folder + name for folder in folders for name in _names(root, by_path[folder + _STATE], field)]
    missing = [path for path in listed if path not in by_path]
    if missing:
        raise NotFoundError(
            f"{field}.path: {_STATE} lists {len(listed)} files, but {missing[0]!r} is not there; copy the folder again"
        )
    return [by_path[path] for path in sorted(listed)], is_dict


def _names(root: DataRoot, state: DataFile, field: str) -> list[str]:
    name, remedy = f"{field}.path: {root.locate(state.path)}", "copy it again"
    with root.open(state.path, state.size) as file:
        facts = kept_object(file.read(), name, remedy)
    try:
        return [str(entry["filename"]) for entry in facts["_data_files"]]
    except (KeyError, TypeError) as error:
        raise ConfigurationError(f"{name}: it lists no files; {remedy}") from error
