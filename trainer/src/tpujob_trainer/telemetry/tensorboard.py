"""The TensorBoard tracker: an event file for each attempt in one folder, which TensorBoard shows as one run.

For a bucket, an event file is written to a local folder and copied at intervals: objects cannot be appended to.
"""

import secrets
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter

from tpujob_trainer.storage import is_local, open_bucket

FLUSH_SECONDS = 30.0


class TensorBoard:
    """Writes event files; a tracker."""

    def __init__(self, directory: str, *, first_step: int) -> None:
        """Opens an event file.

        Args:
            directory: Of the event files, local or in a bucket.
            first_step: Later steps that an earlier attempt recorded are no longer shown.
        """
        self._remote = None if is_local(directory) else open_bucket(directory)
        self._folder = Path(tempfile.mkdtemp(prefix="tensorboard-")) if self._remote else Path(directory)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._writer = SummaryWriter(
            str(self._folder),
            purge_step=first_step + 1,
            flush_secs=int(FLUSH_SECONDS),
            filename_suffix=f".{secrets.token_hex(4)}",  # the rest of the name is host and second
        )
        self._flushed_at = time.monotonic()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Adds each number to the curve of its name."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._flush(force=False)

    def text(self, step: int, prompt: str, text: str) -> None:
        """Adds a text, unchanged."""
        self._writer.add_text("sample", text, step)
        self._flush(force=True)

    def close(self) -> None:
        """Writes what is left."""
        self._writer.close()
        self._copy()

    def _flush(self, *, force: bool) -> None:
        if not force and time.monotonic() - self._flushed_at < FLUSH_SECONDS:
            return
        self._flushed_at = time.monotonic()
        self._writer.flush()
        self._copy()

    def _copy(self) -> None:
        if self._remote is not None:
            for file in self._folder.iterdir():
                self._remote.write(file.name, file.read_bytes())
