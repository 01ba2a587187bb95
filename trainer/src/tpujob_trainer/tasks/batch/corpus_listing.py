"""The list of work units of a corpus: the first worker makes it once, and all others read it."""

import dataclasses
import hashlib
import itertools
import json
import secrets
import time
from collections.abc import Callable
from typing import Any

from tpujob_contract import IndependentWorker, LocalProcess, Process
from tpujob_trainer import data
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.corpus.extract import units
from tpujob_trainer.corpus.extract.batch_size import enough_rows
from tpujob_trainer.corpus.workers import claims
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.storage.errors import used
from tpujob_trainer.tasks.batch.tasks import BatchTask
from tpujob_trainer.tasks.batch.worker import Worker
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.json_object import damaged, kept_object

LISTING_SECONDS = 900.0
"""Workers that start this long after a listing, apart from clock differences, list the corpus again."""
ROWS = "rows.json"
"""The file with the number of rows of the corpus, of which `rows` may select the first ones."""
MeanLength = Callable[[data.Manifest], float | None]
"""Returns the mean tokens of a row of a corpus whose rows are counted; None: unknown."""
LEAST_ROWS = 32
"""Of a unit, if no batch size is set."""


def corpus_manifest(
    worker: Worker, process: Process, config: TrainerConfig, task: BatchTask, length: int, mean_length: MeanLength
) -> data.Manifest:
    """The work units of the corpus, the same for all workers; `length` is the maximum tokens of a row.

    Raises:
        DataChangedError: the corpus has changed since the job started.
    """
    workers = process.workers if isinstance(process, IndependentWorker) else 1

    def unit_rows(whole: data.Manifest) -> int:
        return rows_of_units(whole, config, task, workers=workers, length=length, mean_length=mean_length)

    def list_corpus() -> dict[str, Any]:
        return _corpus(worker.directory, config, task, unit_rows)

    found = _listed_once(worker, process, task, config.data, list_corpus)
    manifest = data.read_manifest(worker.directory, config.data, roots=found["roots"])
    assert manifest is not None
    return manifest


def _listed_once(
    worker: Worker,
    process: Process,
    task: BatchTask,
    source: data.DataConfig,
    list_corpus: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """The result of `list_corpus`, in this worker or recently in another one with the same `data` block and `rows`.

    An older listing may be that of a deleted job of the same name: the corpus is then listed again.
    """
    objects = open_bucket(worker.directory)
    text = json.dumps([dataclasses.asdict(source), task.units.rows], sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    started = secrets.token_hex(4)
    if not isinstance(process, LocalProcess):
        started = f"{process.incarnation}.{process.attempt}"
    for number in itertools.count():
        made = claims.once(
            objects,
            worker.name,
            f"corpus-{started}-{digest}-{number}",
            lambda: json.dumps({"time": time.time(), **list_corpus()}).encode(),
            lapse_seconds=task.units.lease_seconds,
            renew_seconds=task.units.lease_seconds / 4,
        )
        found: dict[str, Any] = json.loads(made)
        if time.time() - found["time"] < LISTING_SECONDS:
            return found
    raise AssertionError("a listing of this worker's own is never old")


def rows_of_units(
    whole: data.Manifest, config: TrainerConfig, task: BatchTask, *, workers: int, length: int, mean_length: MeanLength
) -> int:
    """Rows of a unit of a corpus: the more the shorter they are, so that the rows of a unit fill a batch."""
    total = whole.num_rows
    mean = mean_length(whole) if total is not None and task.is_packed else None
    tokens = length if mean is None else mean
    return units.rows_per_unit(
        row_bytes=round(task.row_bytes + tokens * task.token_bytes),
        shard_bytes=task.units.shard_bytes,
        batch=config.batch_size or max(LEAST_ROWS, enough_rows(length)),
        filled=tokens / length,
        total_rows=total if total is None or task.units.rows is None else min(total, task.units.rows),
        workers=workers,
    )


def _corpus(
    directory: str, config: TrainerConfig, task: BatchTask, unit_rows: Callable[[data.Manifest], int]
) -> dict[str, Any]:
    """Makes the manifest, or checks that the corpus is unchanged; returns what the other workers need to read it."""
    manifest = data.read_manifest(directory, config.data)
    if manifest is not None:
        data.verify_unchanged(manifest, config.data)
        _require_same_rows(directory, config, task, manifest)
    else:
        limit = task.units.rows
        whole = data.make_manifest(dataclasses.replace(config.data, unit_bytes=units.UNIT_BYTES))
        rows = task.units.unit_rows or unit_rows(whole)
        if whole.num_rows is None and limit is None:
            whole = data.make_manifest(dataclasses.replace(config.data, unit_bytes=rows * units.BYTES_PER_ROW))
        manifest = units.cut(whole, rows, limit, field=task.field)
        with used(directory):
            data.write_manifest(manifest, directory)
        _record_rows(directory, whole)
    return {"roots": [source.root for source in manifest.sources], "units": manifest.num_units}


def _recorded_rows(content: bytes, directory: str) -> int:
    where = f"spec.checkpointDir: {directory}/{ROWS}"
    remedy = "delete it, and the rows of the corpus are counted again"
    found = kept_object(content, where, remedy).get("corpus")
    if not isinstance(found, int):
        raise damaged(where, "no number of rows", remedy)
    return found


def _require_same_rows(directory: str, config: TrainerConfig, task: BatchTask, manifest: data.Manifest) -> None:
    """Checks that the job asks for the rows that the units have.

    Raises:
        ConfigurationError: it asks for more or fewer: the units exist already, and more rows would be left out.
    """
    if manifest.num_rows is None:
        return
    recorded = open_bucket(directory).look(ROWS)
    if recorded is not None:
        corpus = _recorded_rows(recorded.data, directory)
    else:  # from a release that did not record it
        whole = data.make_manifest(dataclasses.replace(config.data, unit_bytes=units.UNIT_BYTES))
        _record_rows(directory, whole)
        corpus = whole.num_rows or manifest.num_rows
    problem = units.rows_problem(task.units.rows, made=manifest.num_rows, corpus=corpus, field=task.field)
    if problem is not None:
        raise ConfigurationError(problem)


def _record_rows(directory: str, whole: data.Manifest) -> None:
    if whole.num_rows is not None:
        open_bucket(directory).create(ROWS, json.dumps({"corpus": whole.num_rows}).encode())
