"""Where bytes come from: local files, buckets, the Hugging Face hub, TFDS directories.

- `files`: The files that a path means, and where they are read from.
- `footers`: What a parquet file says about itself in its last bytes.
- `hub`: Paths on the Hugging Face hub: the commit that a branch means now is that of the whole run.
- `hugging_face`: Data sets by their name on the Hugging Face hub: which files a configuration and a split mean.
- `read_meter`: What this process reads of its data, and what goes wrong with it: counted where it happens, told while
  it lasts.
- `remote`: A file of storage that is not a disk of this host, read in ranges: one request for each read, nothing
  kept.
- `retrying`: Which failed reads are repeated, and when: with jitter, never sooner than the storage asks, for a
  limited time.
- `tfds`: The folder of one version of a TFDS data set: which of its files belong to a split.
"""
