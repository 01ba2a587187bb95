"""The text of a session: its units, made once by process 0, kept beside the checkpoint, the same for all processes."""

from __future__ import annotations

from pathlib import Path

from tpujob_trainer import data
from tpujob_trainer.session import Session

MANIFEST_LIMIT_SECONDS = 3600.0
"""For process 0 to read the footers of all files."""
EVALUATION = "evaluation"
"""Folder of the checkpoint directory for the manifest of the evaluation's data."""


def shared_manifest(
    session: Session, config: data.DataConfig, *, batch_size: int, folder: str | None = None
) -> data.Manifest:
    """The data's units, for all processes and attempts.

    Args:
        session: whose checkpoint directory keeps them. Without one every process looks for itself.
        config: which data.
        batch_size: rows of a global batch.
        folder: of the checkpoint directory; None: the directory itself.

    Raises:
        DataChangedError: the data is not what it was when the run began.
    """
    directory = session.directory
    if directory is None:
        return data.make_manifest(config, batch_size=batch_size)
    if "://" not in directory:
        directory = str(Path(directory).absolute())
    where = f"{directory}/{folder}" if folder else directory

    def make() -> str:
        manifest = data.read_manifest(where, config)
        if manifest is None:
            manifest = data.make_manifest(config, batch_size=batch_size)
            data.write_manifest(manifest, where)
        else:
            data.verify_unchanged(manifest, config)
        return manifest.fingerprint

    name = f"manifest/{folder}" if folder else "manifest"
    fingerprint = session.runtime.coordination.lead_decides(name, make, limit_seconds=MANIFEST_LIMIT_SECONDS)
    manifest = data.read_manifest(where, config)
    assert manifest is not None
    assert manifest.fingerprint == fingerprint
    return manifest
