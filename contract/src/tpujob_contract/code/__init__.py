"""A job's own code: from an archive in a bucket to a folder on PYTHONPATH, verified by its digest."""

DIRECTORY = "/tpujob-code"
"""Where the code lies in every pod: written by the init container, read-only for the main one."""
PATCHES = "patches"
"""Folder of the code whose files take the place of files of installed packages."""
STAMP = ".tpujob-code"
"""File in the unpacked folder with the digest of its archive; written last."""
SOURCES = "src"
"""Folder of the code that is on PYTHONPATH as well, where there is one."""

EMULATOR = "STORAGE_EMULATOR_HOST"
"""Variable with the address of an emulator of Cloud Storage, as Google's own libraries read it."""

MAX_ARCHIVE_BYTES = 100 * 1024**2
"""Most bytes of an archive."""
MAX_UNPACKED_BYTES = 500 * 1024**2
"""Most bytes of all its files."""
MAX_FILES = 20_000
"""Most entries of an archive."""
MAX_NAME_BYTES = 255
"""Longest name of a file or folder: what Linux allows."""
