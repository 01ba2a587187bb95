"""Errors about files that are not those that a run started with."""

from __future__ import annotations

from tpujob_trainer.errors import ANOTHER_RUN, ConfigurationError

PATH = "spec.trainer.data.path"


class DataChangedError(ConfigurationError):
    """A file of the data set is not the one that this run started with."""


def damaged(path: str, how: str) -> str:
    """The message about a file, a part of which cannot be read."""
    return f"{PATH}: {path!r}: {how}; copy the file again, or leave it out"


def changed(path: str, how: str) -> str:
    """The message about a file that is not the one the run started with."""
    return f"{PATH}: {path!r} has changed since this run began: {how}; put the data back as it was, or {ANOTHER_RUN}"
