"""What there is to read, divided into units, and in which order they are read.

- `cutting`: Cuts parts of files into units: arithmetic only.
- `listing`: The files of a source: which of those that are there belong to it, and of what kind they are.
- `manifest`: The data set as a run knows it: sources, their files, and units cut out of the files' parts.
- `permutation`: Seeded orders that are computed, never stored.
- `plan`: Which lane reads which unit, and fills which rows of the global batch: arithmetic only.
- `reader`: The rows of one unit, read from its part of its file and nothing else.
- `retrying_reader`: Units read in the middle of a run, where a file that is away may come back: tried again for a
  while.
- `row_limit`: The first rows of a source: `maxRows`, applied before anything is divided.
- `scan`: Makes the manifest of a data set: lists its files, scans each, and cuts their parts into units.
- `table`: The manifest as one parquet file beside the checkpoint: a line for each unit, readable by anything.
- `verification`: Whether the configuration still means the files and the columns of a manifest.
"""
