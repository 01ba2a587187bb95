"""Converts bytes to rows, with one module for each kind of file."""

from tpujob_trainer.data.formats.format import FileScan, Format, OpenedFile, RawRows
from tpujob_trainer.data.formats.known import FORMATS, format_named, is_of

__all__ = ["FORMATS", "FileScan", "Format", "OpenedFile", "RawRows", "format_named", "is_of"]
