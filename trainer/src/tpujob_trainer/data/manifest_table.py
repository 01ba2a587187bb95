"""The manifest as one parquet file beside the checkpoint: a line for each unit, readable by anything."""

from __future__ import annotations

import logging

import fsspec
import fsspec.core
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.files import find_root
from tpujob_trainer.data.manifest import Manifest
from tpujob_trainer.errors import ConfigurationError, TrainerError

logger = logging.getLogger(__name__)

FILE_NAME = "_data.parquet"
"""The underscore keeps it out of the data, should the checkpoint directory lie below the data's folder."""
_VERSION = "1"


def write_manifest(manifest: Manifest, directory: str) -> None:
    """Write the manifest into a directory (path or URL); readers see all of it or nothing. For one process only."""
    filesystem, folder = fsspec.core.url_to_fs(directory)
    filesystem.makedirs(folder, exist_ok=True)
    target = f"{folder.rstrip('/')}/{FILE_NAME}"
    sink = pa.BufferOutputStream()
    pq.write_table(_to_table(manifest), sink, compression="zstd")
    content = sink.getvalue().to_pybytes()
    if "file" in filesystem.protocol:
        filesystem.pipe_file(f"{target}.partial", content)
        filesystem.mv(f"{target}.partial", target)
    else:  # an object appears whole
        filesystem.pipe_file(target, content)


def read_manifest(directory: str, config: DataConfig) -> Manifest | None:
    """The manifest that a run wrote into a directory, for the data at `config.path`; None if there is none.

    Raises:
        ConfigurationError: the run trained on another column.
    """
    filesystem, folder = fsspec.core.url_to_fs(directory)
    try:
        content = filesystem.cat_file(f"{folder.rstrip('/')}/{FILE_NAME}")
    except FileNotFoundError:
        return None
    table = pq.read_table(pa.BufferReader(content))
    facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    if facts.get("tpujob.version") != _VERSION:
        raise TrainerError(f"{directory}/{FILE_NAME} was written by a version of the trainer that this one cannot read")
    if facts["tpujob.text_column"] != config.text_column:
        raise ConfigurationError(
            f"spec.trainer.data.textColumn: {config.text_column!r}, but this run began with "
            f"{facts['tpujob.text_column']!r}; put it back, or start another run in another checkpointDir"
        )
    return _from_table(table, find_root(config.path).url, config.text_column)


def _to_table(manifest: Manifest) -> pa.Table:
    """Units, and for a file that has none a line with row group -1, so that it is not forgotten."""
    without = np.setdiff1d(np.arange(len(manifest.paths)), manifest.unit_file).astype(np.int32)
    nothing = np.zeros(len(without), dtype=np.int64)
    file = pa.array(np.concatenate([manifest.unit_file, without]))
    return pa.table(
        {
            "path": _by_file(file, pa.array(manifest.paths)),
            "size": _by_file(file, pa.array(manifest.sizes)),
            "footer": _by_file(file, pa.array(manifest.digests)),
            "version": _by_file(file, pa.array(manifest.versions)),
            "row_group": np.concatenate([manifest.unit_row_group, nothing.astype(np.int32) - 1]),
            "first_row": np.concatenate([manifest.unit_first_row, nothing]),
            "num_rows": np.concatenate([manifest.unit_num_rows, nothing]),
            "num_bytes": np.concatenate([manifest.unit_num_bytes, nothing]),
        },
        metadata={"tpujob.version": _VERSION, "tpujob.text_column": manifest.text_column, "tpujob.root": manifest.root},
    )


def _by_file(file: pa.Array, values: pa.Array) -> pa.Array:
    return values.take(file)


def _from_table(table: pa.Table, root: str, text_column: str) -> Manifest:
    paths = table.column("path").combine_chunks().dictionary_encode()
    names = paths.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), dtype=np.int32)
    rank[order] = np.arange(len(names), dtype=np.int32)
    file = rank[paths.indices.to_numpy()]
    line_of_file = np.unique(file, return_index=True)[1]
    kept = table.column("row_group").to_numpy() >= 0
    files = table.select(["size", "footer", "version"]).take(pa.array(line_of_file))
    units = table.select(["row_group", "first_row", "num_rows", "num_bytes"]).filter(pa.array(kept))
    return Manifest(
        root,
        text_column,
        tuple(names[at] for at in order),
        files.column("size").to_numpy(),
        tuple(files.column("footer").to_pylist()),
        tuple(files.column("version").to_pylist()),
        file[kept],
        *(units.column(name).to_numpy() for name in ("row_group", "first_row", "num_rows", "num_bytes")),
    )
