"""From lanes to batches: packing, position, prefetching.

- `eval_batches`: A set to evaluate on: a fixed number of batches, the same ones each time and for any number of
  processes.
- `lane`: One lane: a stream of documents of one source, cut into windows, with a position that fits into six numbers.
- `loader`: The rows of the global batch that this process holds, batch after batch, read ahead by a thread.
- `packing`: Stretches of tokens to the rows of a batch: all rows of a process at once, by numpy.
- `position`: The position of the data as an array that travels in the checkpoint beside the weights.
- `prefetch`: Threads that work ahead of the training loop, and never keep the process from ending.
- `rows`: The rows of a unit in their shuffled order, without those that cannot be trained on; and what became of
  those.
- `samples`: Samples of webdataset tars as they are, batch after batch: the same ones whatever the number of
  processes.
- `share`: Which rows of the data a process begins with, in words.
"""
