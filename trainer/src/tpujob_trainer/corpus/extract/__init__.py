"""What independent workers compute of the rows of a corpus, and how it becomes files.

- `layers`: Layers by number or name, and the passes over the model that keep them. Pure.
- `config`: The blocks `extract`, `score`, `embed` and `generate`.
- `batches`: Which rows are computed together, and how rows are divided into units and files. Pure.
- `batch_size`: The batch size where none is given.
- `description`: What all files of an output directory have in common.
- `units`: The units of a corpus, cut by rows.
- `rows`: A unit's rows as tokens.
- `program`: A function of batches, compiled once for each shape.
- `forward`: The activations of layers: the model up to the last kept one.
- `scores`: The loss of each row.
- `embeddings`: One vector for each row.
- `completions`: A continuation of each row.
- `statistics`: Sums that can be added up over units. Pure.
- `values`: Positions, types and statistics of a layer's values, on the device.
- `unit_values`: The values of a unit, gathered from its batches.
- `batched`: The work of a unit, from rows of text to files.
- `shards`: Files of rows: Parquet or Arrow.
- `forecast`: What an extraction will write, from some rows of its corpus.
- `chip_time`: What an extraction takes in chip-hours, as measured. Pure.
- `progress`: How far an extraction is. Pure.
- `verification`: Whether the files are what their results say.
- `merge`: An index, statistics and a card: one data set of all files.
- `inspection`: A program for the command line: status, verify, merge.
"""
