"""From bytes to rows, one module for each kind of file.

- `arrayrecord`: Array record files: Riegeli chunks of records, and a footer that says where they are.
- `columns`: Which Arrow types a column of text, of messages or of tokens may have.
- `content`: What files without a footer tell about themselves, and their bytes.
- `examples`: Records: tf.train.Example messages, as TFDS and most TFRecord and array record files hold, or objects in
  JSON.
- `format`: What the manifest and the lanes need of a kind of file.
- `known`: The formats there are.
- `lines`: Files of lines: JSON lines and plain text.
- `parquet`: Parquet: a part is a row group; only the column wanted is read.
- `tfrecord`: TFRecord files: records that follow each other, each with its length and checksums.
- `values`: Values of records as Arrow columns.
- `webdataset`: Webdataset tars: consecutive members of one name are a sample, their extensions its fields.
"""

from tpujob_trainer.data.formats.format import FileScan, Format, OpenedFile, RawRows
from tpujob_trainer.data.formats.known import FORMATS, format_named, is_of

__all__ = ["FORMATS", "FileScan", "Format", "OpenedFile", "RawRows", "format_named", "is_of"]
