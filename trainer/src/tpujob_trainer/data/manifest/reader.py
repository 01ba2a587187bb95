"""Reads the rows of one unit, from its part of its file only."""

from __future__ import annotations

import collections
import threading
from collections.abc import Sequence

from tpujob_trainer.data.formats import OpenedFile, RawRows, format_named
from tpujob_trainer.data.formats.webdataset import OpenedTar, Sample
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.sources.files import DataRoot, explained, open_root

_FILES_KEPT = 64


class UnitReader:
    """Reads units; may be used by several threads."""

    def __init__(
        self, manifest: Manifest, roots: Sequence[DataRoot] | None = None, *, limit_seconds: float | None = None
    ) -> None:
        """Reads the files of a manifest.

        Args:
            manifest: the data.
            roots: those of its sources; opened if None.
            limit_seconds: how long a failed read of remote storage is retried; None: the limit of this process.
        """
        self._manifest = manifest
        self._roots = (
            list(roots)
            if roots is not None
            else [
                open_root(source.root, limit_seconds=limit_seconds, query=source.query) for source in manifest.sources
            ]
        )
        self._lock = threading.Lock()
        self._files: collections.OrderedDict[int, OpenedFile] = collections.OrderedDict()

    def read(self, number: int) -> RawRows:
        """The rows of a unit, in the order of the file.

        Raises:
            DataChangedError: the file is not the one of the manifest.
            NotFoundError: it is gone, or may no longer be read.
        """
        unit = self._manifest.unit(number)
        file = int(self._manifest.unit_file[number])
        root = self._roots[self._manifest.file_source[file]]
        with explained(root.locate(unit.path)):
            return self._opened(file, root).read(unit.part, unit.first, unit.count)

    def samples(self, number: int) -> list[Sample]:
        """The samples of a unit that is a webdataset tar, as bytes; raises the errors of `read`."""
        unit = self._manifest.unit(number)
        file = int(self._manifest.unit_file[number])
        root = self._roots[self._manifest.file_source[file]]
        with explained(root.locate(unit.path)):
            opened = self._opened(file, root)
            assert isinstance(opened, OpenedTar)
            return opened.samples()

    def path_of(self, number: int) -> str:
        """The full path of the file that a unit is in."""
        file = int(self._manifest.unit_file[number])
        return self._roots[self._manifest.file_source[file]].locate(self._manifest.paths[file])

    def forget(self, number: int) -> None:
        """Makes the next read open and check the file of a unit again."""
        with self._lock:
            self._files.pop(int(self._manifest.unit_file[number]), None)

    def _opened(self, file: int, root: DataRoot) -> OpenedFile:
        """The open file; each process checks it, to notice before use that it changed during a run."""
        with self._lock:
            if file in self._files:
                self._files.move_to_end(file)
                return self._files[file]
        source = self._manifest.sources[self._manifest.file_source[file]]
        known = format_named(source.format)
        opened = known.open(root, self._manifest.file(file), self._manifest.digests[file], source.column)
        with self._lock:
            self._files[file] = opened
            while len(self._files) > _FILES_KEPT:
                self._files.popitem(last=False)
        return opened
