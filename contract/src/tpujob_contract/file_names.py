"""Names of the files that data sets consist of: their endings by format, and which files of a folder are text."""

from typing import Mapping, Optional, Tuple

_PACKED = ("", ".gz", ".zst")

FILE_ENDINGS: Mapping[str, Tuple[str, ...]] = {
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow",),
    "arrayrecord": (".array_record", ".arrayrecord"),
    "tfrecord": (".tfrecord", ".tfrecords"),
    "webdataset": (".tar", ".tar.gz", ".tgz", ".tar.zst"),
    "jsonl": tuple(ending + packed for ending in (".jsonl", ".ndjson", ".json") for packed in _PACKED),
    "csv": tuple(ending + packed for ending in (".csv", ".tsv") for packed in _PACKED),
    "text": tuple(".txt" + packed for packed in _PACKED),
}
"""By the values of `spec.trainer.data.format`."""


SAMPLE_BYTES = 8192
"""How many bytes of a file are examined."""

_KINDS = {
    "PDF": (".pdf",),
    "an image": (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ico", ".heic"),
    "sound or video": (".mp3", ".wav", ".flac", ".ogg", ".mp4", ".mov", ".mkv", ".avi", ".webm"),
    "an archive": (".zip", ".7z", ".rar", ".gz", ".bz2", ".xz", ".zst", ".tar", ".tgz", ".jar", ".whl"),
    "an office document": (".doc", ".docx", ".xls", ".xlsx", ".ppt", ".pptx", ".odt", ".ods", ".epub"),
    "a program or a library": (".exe", ".dll", ".so", ".dylib", ".o", ".a", ".pyc", ".class", ".wasm"),
    "a font": (".ttf", ".otf", ".woff", ".woff2"),
    "arrays or weights": (".npy", ".npz", ".safetensors", ".pt", ".pth", ".ckpt", ".h5", ".pkl", ".parquet", ".arrow"),
}
_MAGIC = (
    (b"%PDF-", "PDF"),
    (b"{\\rtf", "an office document"),
    (b"%!PS", "PostScript"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
"""First bytes of files that are not text to train on, although their bytes may be characters."""
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b")) + b"\x7f"
_MOST_CONTROL_FRACTION = 0.01


def kind_by_name(name: str) -> Optional[str]:
    """The kind of a file whose name shows that it is not text; None: the name does not show it."""
    lower = name.lower()
    return next((kind for kind, endings in _KINDS.items() if lower.endswith(endings)), None)


def why_not_text(name: str, sample: bytes) -> Optional[str]:
    """Why a file is not read as text; None: it is.

    Args:
        name: The file's name.
        sample: Its first `SAMPLE_BYTES` bytes, or all of a shorter one.
    """
    kind = kind_by_name(name)
    if kind is not None:
        return kind
    for magic, what in _MAGIC:
        if sample.startswith(magic):
            return what
    if len(sample) < SAMPLE_BYTES and not sample.strip():
        return "empty"
    if b"\0" in sample:
        return "binary"
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        # The sample may end inside a character.
        if len(sample) < SAMPLE_BYTES or error.start < len(sample) - 3:
            return "not UTF-8"
    control = len(sample) - len(sample.translate(None, _CONTROL))
    return "binary" if control > _MOST_CONTROL_FRACTION * len(sample) else None
