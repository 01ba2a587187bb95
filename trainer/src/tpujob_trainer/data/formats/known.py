"""The formats there are."""

from __future__ import annotations

from tpujob_trainer.data.formats.format import Format
from tpujob_trainer.data.formats.parquet import Parquet

FORMATS: tuple[Format, ...] = (Parquet(),)
"""In the order in which a folder is searched: the first that has files there is taken."""


def format_named(name: str) -> Format:
    """The format that a configuration or a manifest names."""
    return next(known for known in FORMATS if known.name == name)
