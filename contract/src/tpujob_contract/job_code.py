"""Names and limits for a job's own code: an archive in a bucket that becomes a folder on PYTHONPATH."""

DIRECTORY = "/tpujob-code"
"""Folder of the code in every pod: written by the init container, read-only for the main one."""
PATCHES = "patches"
"""Folder of the code whose files replace files of installed packages."""
STAMP = ".tpujob-code"
"""File in the unpacked folder with the digest of its archive; written last."""
SOURCES = "src"
"""Folder of the code that is also on PYTHONPATH, if it exists."""

EMULATOR = "STORAGE_EMULATOR_HOST"
"""Variable with the address of an emulator of Cloud Storage, as Google's own libraries read it."""

MAX_ARCHIVE_BYTES = 100 * 1024**2
"""Most bytes of an archive."""
MAX_UNPACKED_BYTES = 500 * 1024**2
"""Most bytes of an archive's files, unpacked."""
MAX_FILES = 20_000
"""Most entries of an archive."""
MAX_NAME_BYTES = 255
"""Most bytes of the name of a file or folder: the limit of Linux."""
