"""The manifest as one parquet file beside the checkpoint: a row for each unit, readable by any parquet reader."""

import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tpujob_trainer.data.column import Column
from tpujob_trainer.data.config import FIELD, DataConfig
from tpujob_trainer.data.manifest.manifest import Manifest, Source
from tpujob_trainer.data.manifest.scan import make_manifest, require_sources, verify_unchanged
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.storage.errors import used
from tpujob_trainer.values.errors import ConfigurationError, brief

logger = logging.getLogger(__name__)

FILE_NAME = "_data.parquet"
"""The underscore keeps it out of the data if the checkpoint directory is below the data's folder."""
_VERSION = "2"


def kept_manifest(directory: str, config: DataConfig, *, batch_size: int) -> Manifest:
    """The manifest of a run: the first attempt makes it, later ones check that it still holds. For one process only.

    Args:
        directory: path or URL.
        config: of the data.
        batch_size: rows of a global batch.

    Raises:
        DataChangedError: the data is not what it was when the run started.
        ConfigurationError: as `make_manifest` and `read_manifest`.
    """
    manifest = read_manifest(directory, config)
    if manifest is None:
        manifest = make_manifest(config, batch_size=batch_size)
        with used(directory):
            write_manifest(manifest, directory)
    else:
        verify_unchanged(manifest, config)
    return manifest


def write_manifest(manifest: Manifest, directory: str) -> None:
    """Writes the manifest into a directory (path or URL); readers see all of it or nothing. For one process only."""
    sink = pa.BufferOutputStream()
    pq.write_table(_to_table(manifest), sink, compression="zstd", write_page_checksum=True)
    open_bucket(directory).write(FILE_NAME, sink.getvalue().to_pybytes())


def read_manifest(directory: str, config: DataConfig, *, roots: Sequence[str] | None = None) -> Manifest | None:
    """The manifest that a run wrote into a directory, with the current roots of the data; None: there is none.

    Args:
        directory: path or URL.
        config: of the data.
        roots: the current roots of the data, for a process that received them; None: storage is asked.

    Raises:
        ConfigurationError: the run trained on other columns or sources, or was started by another version of the
            trainer; or the manifest is damaged.
    """
    with used(directory):
        stored = open_bucket(directory).look(FILE_NAME)
    if stored is None:
        return None
    return require_sources(_parsed(stored.data, directory), config, roots)


def read_unit_rows(directory: str) -> np.ndarray | None:
    """The rows of each unit, int64 [units]; None: a format does not count them, or there is no manifest."""
    with used(directory):
        stored = open_bucket(directory).look(FILE_NAME)
    if stored is None:
        return None
    manifest = _parsed(stored.data, directory)
    return None if manifest.num_rows is None else manifest.unit_count


def _parsed(content: bytes, directory: str) -> Manifest:
    try:
        table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
        facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        if (version := facts.get("tpujob.version", "unknown")) == _VERSION:
            return _from_table(table, tuple(_source(each) for each in json.loads(facts["tpujob.sources"])))
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"{directory}/{FILE_NAME}: the list of data is damaged ({brief(error)}); delete it: it is made again from "
            "the data, and compared with the checkpoint"
        ) from error
    raise ConfigurationError(
        f"{directory}/{FILE_NAME}: format {version} of the list of data, this trainer reads {_VERSION}; go on with the "
        "trainer that began the run, or begin anew in another spec.checkpointDir"
    )


def _to_table(manifest: Manifest) -> pa.Table:
    """A row for each unit, and for each file without units a row with part -1, so that the file is kept."""
    without = np.setdiff1d(np.arange(len(manifest.paths)), manifest.unit_file).astype(np.int32)
    nothing = np.zeros(len(without), dtype=np.int64)
    file = pa.array(np.concatenate([manifest.unit_file, without]))
    return pa.table(
        {
            "source": _by_file(file, pa.array(manifest.file_source)),
            "path": _by_file(file, pa.array(manifest.paths)),
            "size": _by_file(file, pa.array(manifest.sizes)),
            "digest": _by_file(file, pa.array(manifest.digests)),
            "version": _by_file(file, pa.array(manifest.versions)),
            "file": file,
            "part": np.concatenate([manifest.unit_part, nothing.astype(np.int32) - 1]),
            "first": np.concatenate([manifest.unit_first, nothing]),
            "count": np.concatenate([manifest.unit_count, nothing]),
            "bytes": np.concatenate([manifest.unit_bytes, nothing]),
        },
        metadata={"tpujob.version": _VERSION, "tpujob.sources": json.dumps([_facts(s) for s in manifest.sources])},
    )


def _by_file(file: pa.Array, values: pa.Array) -> pa.Array:
    return values.take(file)


def _facts(source: Source) -> dict[str, Any]:
    column = source.column
    facts = {"root": source.root, "format": source.format, "kind": column.kind, "column": column.name}
    return facts | ({"rules": column.rules} if column.rules else {})


def _source(facts: dict[str, Any]) -> Source:
    column = Column(facts["kind"], facts["column"], FIELD)
    return Source(facts["root"], facts["format"], column, rules_then=facts.get("rules", {}))


def _from_table(table: pa.Table, sources: tuple[Source, ...]) -> Manifest:
    file = table.column("file").to_numpy()
    line_of_file = np.unique(file, return_index=True)[1]
    kept = table.column("part").to_numpy() >= 0
    files = table.select(["source", "path", "size", "digest", "version"]).take(pa.array(line_of_file))
    units = table.select(["part", "first", "count", "bytes"]).filter(pa.array(kept))
    return Manifest(
        sources,
        tuple(files.column("path").to_pylist()),
        files.column("source").to_numpy(),
        files.column("size").to_numpy(),
        tuple(files.column("digest").to_pylist()),
        tuple(files.column("version").to_pylist()),
        file[kept],
        *(units.column(name).to_numpy() for name in ("part", "first", "count", "bytes")),
    )
