"""The data of a session: its units, made once by process 0, kept in the checkpoint directory for all processes."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tpujob_trainer import data
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.session.session import Session
from tpujob_trainer.storage import is_local
from tpujob_trainer.storage.errors import unusable

MANIFEST_LIMIT_SECONDS = 3600.0
"""Limit for process 0 to read the footers of all files."""
METADATA_LIMIT_SECONDS = 300.0
"""Limit for process 0 to read the metadata of the newest checkpoint."""
EVALUATION = "evaluation"
"""Folder of the checkpoint directory for the manifest of the evaluation's data."""


class BatchesConfig(Protocol):
    """The values that batches depend on; implemented by `config.resolve.ResolvedConfig`."""

    @property
    def data(self) -> data.DataConfig:
        """The data block."""

    @property
    def batch_size(self) -> int:
        """Rows of a global batch."""

    @property
    def sequence_length(self) -> int:
        """Tokens of a row."""

    @property
    def seed(self) -> int:
        """Of the order of rows."""


@dataclass(frozen=True)
class Dataset:
    """The data that a run is trained on, and how it is divided."""

    manifest: data.Manifest
    tokenizer: data.Tokenizer
    plan: data.LanePlan
    described: Mapping[str, str | int]
    """All that the batches depend on; kept with every checkpoint."""


def training_data(run: BatchesConfig, tokenizer: data.Tokenizer, session: Session) -> Dataset:
    """The run's data; if there is a checkpoint, exactly the data that it was trained on.

    Raises:
        ConfigurationError: the batches would differ from those that the run started with; names the field.
    """
    manifest = shared_manifest(run.data, session, batch_size=run.batch_size)
    begun = _begun_with(session.directory, session.runtime)
    if begun:
        data.require_same_batch_size(begun, run.batch_size)
    lanes = int(begun["lanes"]) if begun else None
    plan = data.plan_lanes(manifest, run.data, batch_size=run.batch_size, seed=run.seed, begun_with=lanes)
    described = data.describe_data(manifest, tokenizer, plan, run.sequence_length)
    if begun:
        data.require_same_data(begun, described)
    return Dataset(manifest, tokenizer, plan, described)


def _begun_with(directory: str | None, runtime: Runtime) -> Mapping[str, str | int] | None:
    """The description of the newest checkpoint's data; None: there is no checkpoint."""
    if directory is None:
        return None

    def read() -> Mapping[str, str | int] | None:
        try:
            found = layout.metadata_of_newest(directory)
        except OSError as error:
            raise unusable(directory, error) from error
        return found.get("data") if found else None

    begun: Mapping[str, str | int] | None = runtime.coordination.lead_decides(
        "data/begun", read, limit_seconds=METADATA_LIMIT_SECONDS
    )
    return begun


def shared_manifest(
    config: data.DataConfig, session: Session, *, batch_size: int, folder: str | None = None
) -> data.Manifest:
    """The data's units, the same for all processes and attempts.

    Args:
        config: the data block.
        session: of this process. Its checkpoint directory keeps the units; without one every process lists the data.
        batch_size: rows of a global batch.
        folder: of the checkpoint directory; None: the directory itself.

    Raises:
        DataChangedError: the data has changed since the run started.
    """
    directory = session.directory
    if directory is None:
        return data.make_manifest(config, batch_size=batch_size)
    if is_local(directory):
        directory = str(Path(directory).absolute())
    where = f"{directory}/{folder}" if folder else directory

    def make() -> str:
        manifest = data.kept_manifest(where, config, batch_size=batch_size)
        return json.dumps([manifest.fingerprint, [source.root for source in manifest.sources]])

    name = f"manifest/{folder}" if folder else "manifest"
    decided = session.runtime.coordination.lead_decides(name, make, limit_seconds=MANIFEST_LIMIT_SECONDS)
    fingerprint, roots = json.loads(decided)
    kept = data.read_manifest(where, config, roots=roots)
    assert kept is not None
    assert kept.fingerprint == fingerprint
    if session.claim is not None:
        file = f"{folder}/{data.MANIFEST_FILE}" if folder else data.MANIFEST_FILE
        session.claim.keep(file, functools.partial(data.write_manifest, kept, where))
    return kept
