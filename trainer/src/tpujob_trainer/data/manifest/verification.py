"""Checks that the configuration still refers to the files and the columns of a manifest."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from tpujob_trainer.data.column import Column, plain_rule
from tpujob_trainer.data.config import FIELD, DataConfig
from tpujob_trainer.data.manifest.listing import Listing, is_pinned, list_source, root_now
from tpujob_trainer.data.manifest.manifest import Manifest, Source
from tpujob_trainer.data.manifest.row_limit import up_to
from tpujob_trainer.data.sources.files import DataFile
from tpujob_trainer.errors import ANOTHER_RUN, ConfigurationError
from tpujob_trainer.storage.filesystems import is_on_disk
from tpujob_trainer.storage.versions import DataChangedError, changed, is_of_status

_THREADS = 32


def verify_unchanged(manifest: Manifest, config: DataConfig) -> None:
    """Checks that the configuration still refers to the manifest's files: same paths, sizes and versions, else digests.

    Raises:
        DataChangedError: naming a file that is gone, new or different.
    """
    for number, (field, source) in enumerate(config.sources()):
        if is_pinned(manifest.sources[number].root):
            continue
        listing = list_source(source, field)
        if source.max_rows is not None:
            listing = up_to(listing, manifest.paths[np.flatnonzero(manifest.file_source == number)[-1]])
        numbers = np.flatnonzero(manifest.file_source == number).tolist()
        known = {manifest.paths[at]: at for at in numbers}
        now = {file.path: file for file in listing.files}
        for path in known:
            if path not in now:
                raise DataChangedError(changed(path, "it is gone"))
        for path in now:
            if path not in known:
                raise DataChangedError(changed(path, "it is new"))
        with concurrent.futures.ThreadPoolExecutor(_THREADS, "verify") as pool:
            check = functools.partial(_require_same, manifest, listing, source.column(field))
            for _ in pool.map(check, [now[path] for path in known], known.values()):
                pass


def require_sources(manifest: Manifest, config: DataConfig, roots: Sequence[str] | None = None) -> Manifest:
    """The manifest with the current roots of the files: `roots`, or those that storage reports if None.

    Raises:
        ConfigurationError: the run started with other columns, other rules of a column, or another number of sources.
    """
    wanted = config.sources()
    if len(wanted) != len(manifest.sources):
        raise ConfigurationError(
            f"{FIELD}: there are {len(wanted)} sources, but this run began with {len(manifest.sources)}; "
            f"put them back, or {ANOTHER_RUN}"
        )
    sources = []
    for number, ((field, source), known) in enumerate(zip(wanted, manifest.sources, strict=True)):
        column = source.column(field)
        if (column.kind, column.name) != (known.column.kind, known.column.name):
            raise ConfigurationError(
                f"{column.field}: {column.name!r}, but this run began with {known.column.name!r}; "
                f"put it back, or {ANOTHER_RUN}"
            )
        _require_rules(field, column, known.rules)
        root = roots[number] if roots is not None else root_now(source, field, known.root)
        sources.append(Source(root, known.format, column, source.query))
    return dataclasses.replace(manifest, sources=tuple(sources))


def _require_rules(field: str, column: Column, known: Mapping[str, str]) -> None:
    for key in {**known, **column.rules}:
        before, now = (rules.get(key, plain_rule(key, column.kind)) or "all" for rules in (known, column.rules))
        if before != now:
            raise ConfigurationError(
                f"{field}.{key}: {now!r}, but this run began with {before!r}; put it back, or start another run in "
                "another checkpointDir"
            )


def _require_same(manifest: Manifest, listing: Listing, column: Column, file: DataFile, number: int) -> None:
    if file.size != manifest.sizes[number]:
        raise DataChangedError(changed(file.path, f"its size was {manifest.sizes[number]} bytes, now {file.size}"))
    known = manifest.versions[number]
    on_disk = is_on_disk(listing.root.filesystem)
    if file.version and (is_of_status(known, file.version) if on_disk else file.version == known):
        return
    expected = dataclasses.replace(file, version=known) if on_disk else file
    listing.format.open(listing.root, expected, manifest.digests[number], column)
