"""Data sets: `tpujob data`.

- `from_folder`: Makes a parquet data set of the text files below a folder: one row a file, columns `text` and `path`.
- `inspection`: Looks at a data set with the trainer's own code, started as a process, and tells it in words.
"""
