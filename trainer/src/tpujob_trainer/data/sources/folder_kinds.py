"""Folders that are more than the files in them: tables with a log, and splits beside one another."""

import re
from collections.abc import Iterable

from tpujob_trainer.values.errors import ConfigurationError

_KINDS = {
    r"_delta_log/": ("a Delta table", "`deltalake.DeltaTable(PATH).to_pyarrow_table()`"),
    r"\.hoodie/": ("a Hudi table", "Spark"),
    r"metadata/[^/]*\.metadata\.json$": ("an Iceberg table", "`table.scan().to_arrow()` of pyiceberg"),
    r"_versions/[^/]*\.manifest$": ("a Lance data set", "`lance.dataset(PATH).to_table()`"),
}
"""By a pattern of the names in it: what it is, and what reads its rows."""
_KIND = re.compile(rf"(?:^|/)(?:{'|'.join(f'({pattern})' for pattern in _KINDS)})")
_SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_NAMES = {name: split for split, names in _SPLITS.items() for name in names}


def require_loose_files(paths: Iterable[str], what: str, field: str) -> None:
    """Checks that files, hidden ones too, are rows by themselves, and not parts of a table that has a list of them.

    Raises:
        ConfigurationError: they are; what reads them is named.
    """
    for path in sorted(paths):
        found = _KIND.search(path)
        if found is None:
            continue
        kind, reader = list(_KINDS.values())[(found.lastindex or 0) - 1]
        raise ConfigurationError(
            f"{field}: {what!r} is {kind} ({path!r}), and its files alone are not its rows; write the rows as parquet, "
            f"with {reader}, and give those files"
        )


def split_of(path: str) -> str | None:
    """The split that a file belongs to by the names of its folders, or its own up to a dash; None: by none."""
    *folders, name = path.lower().split("/")
    return next((_NAMES[each] for each in (*folders, re.split(r"[-_.]", name)[0]) if each in _NAMES), None)
