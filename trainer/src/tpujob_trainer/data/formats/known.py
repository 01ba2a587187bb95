"""The supported formats."""

from __future__ import annotations

import re

from tpujob_trainer.data.formats.arrayrecord import ArrayRecord
from tpujob_trainer.data.formats.format import Format
from tpujob_trainer.data.formats.lines import JsonLines, Text
from tpujob_trainer.data.formats.parquet import Parquet
from tpujob_trainer.data.formats.tfrecord import TFRecord
from tpujob_trainer.data.formats.webdataset import WebDataset

FORMATS: tuple[Format, ...] = (Parquet(), ArrayRecord(), TFRecord(), WebDataset(), JsonLines(), Text())
"""In the order in which a folder is searched: the first format that has files there is used."""

_SHARD = re.compile(r"-\d{4,}-of-\d{4,}$")


def format_named(name: str) -> Format:
    """The format that a configuration or a manifest names."""
    return next(known for known in FORMATS if known.name == name)


def is_of(known: Format, path: str) -> bool:
    """Whether a file's name fits a format; `train.tfrecord-00000-of-00010` is a .tfrecord."""
    return _SHARD.sub("", path).endswith(known.suffixes)
