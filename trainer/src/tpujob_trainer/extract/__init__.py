"""Activations of a corpus: what is kept of which layers, and how rows become files.

- `layers`: Layers by number or name, and the passes over the model that keep them. Pure.
- `config`: The `extract` block.
- `batches`: Which rows are computed together, and how rows are divided into units and files. Pure.
- `batch_size`: The batch size where none is given.
- `description`: What all files of an output directory have in common.
- `units`: The units of a corpus, cut by rows.
- `forward`: The model up to the last kept layer, compiled once for each shape of batch.
- `values`: Positions, types and statistics of a layer's values, on the device.
- `activations`: The work of a unit, from rows of text to files.
- `shards`: Files of rows: Parquet or Arrow.
- `progress`: How far an extraction is. Pure.
- `verification`: Whether the files are what their results say.
- `merge`: An index, statistics and a card: one data set of all files.
- `inspection`: A program for the command line: status, verify, merge.
"""
