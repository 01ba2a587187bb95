"""The supported formats."""

import re

from tpujob_trainer.data.column import Column
from tpujob_trainer.data.formats.arrayrecord import ArrayRecord
from tpujob_trainer.data.formats.arrow import Arrow
from tpujob_trainer.data.formats.format import Format
from tpujob_trainer.data.formats.lines import BOM, JsonLines, Text, is_json_document
from tpujob_trainer.data.formats.parquet import Parquet
from tpujob_trainer.data.formats.separated import Separated
from tpujob_trainer.data.formats.tfrecord import TFRecord
from tpujob_trainer.data.formats.values import BROKEN, value_of_json
from tpujob_trainer.data.formats.webdataset import WebDataset

FORMATS: tuple[Format, ...] = (
    Parquet(),
    Arrow(),
    ArrayRecord(),
    TFRecord(),
    WebDataset(),
    JsonLines(),
    Separated(),
    Text(),
)
"""In the order in which a folder is searched: the first format that has files there is used."""

_SHARD = re.compile(r"-\d{4,}-of-\d{4,}$")


def format_named(name: str) -> Format:
    """The format that a configuration or a manifest names."""
    return next(known for known in FORMATS if known.name == name)


def is_of(known: Format, path: str) -> bool:
    """Whether a file's name fits a format, in upper or lower case; `train.tfrecord-00000-of-00010` is a .tfrecord."""
    return _SHARD.sub("", path.lower()).endswith(known.suffixes)


def format_of_text(start: bytes) -> str:
    """The name of the format of a file whose name fits none and whose content is text, by its first bytes."""
    line = start.removeprefix(BOM).lstrip().partition(b"\n")[0]
    return "jsonl" if is_json_document(start) or value_of_json(line, _ANY) is not BROKEN else "text"


_ANY = Column("row", "", "")
