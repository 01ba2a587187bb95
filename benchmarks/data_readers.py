"""Five readers of the same text files; each yields an endless stream of batches of int32 arrays [rows, S].

Each reads parquet from disk, shuffles within a row group or a thousand rows, tokenises with the same tokenizer, appends
the end token to each document, packs documents into windows (inputs, targets, segment ids, positions), and reads the
share of process 0 of `processes`.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tpujob_trainer.data import BatchLoader, DataConfig, load_tokenizer, make_manifest, plan_lanes

SHUFFLE_ROWS = 1000
"""The rows of a shuffle buffer; our reader and `grain_on_row_groups` shuffle within a row group instead."""
KEYS = ("inputs", "targets", "segment_ids", "positions")


@dataclass(frozen=True)
class Task:
    """The input of a reader, and the shape of its batches."""

    folder: str
    files: tuple[str, ...]
    tokenizer: str
    rows: int
    """Of each process."""
    sequence_length: int
    processes: int

    @property
    def share(self) -> tuple[str, ...]:
        """Process 0's files, for readers that do not split the files themselves."""
        return self.files[:: self.processes]


Batches = Iterator[dict[str, Any]]


def tpujob(task: Task) -> Batches:
    """The loader of the trainer, with its threads."""
    config = DataConfig(path=task.folder, tokenizer=task.tokenizer)
    tokenizer = load_tokenizer(config)
    total = task.rows * task.processes
    manifest = make_manifest(config, batch_size=total)
    plan = plan_lanes(manifest, config, batch_size=total, seed=0)
    with BatchLoader(manifest, tokenizer, plan, task.sequence_length, rows=range(task.rows)) as loader:
        for batch in loader:
            yield {key: getattr(batch, key) for key in KEYS}


def datasets_as_documented(task: Task) -> Batches:
    """Streaming, split_dataset_by_node, shuffle, batched map to tokenise, batched map to pack."""
    encode = _encoder(task.tokenizer)
    length = task.sequence_length

    def pack(columns: dict[str, list[list[int]]]) -> dict[str, Any]:
        # As in the examples of transformers; the remainder of each thousand rows is dropped.
        tokens = list(itertools.chain.from_iterable(columns["ids"]))
        ends = np.cumsum([len(ids) for ids in columns["ids"]])
        return _windows(np.array(tokens, np.int32), ends, length)

    stream = (
        _streamed(task)
        .shuffle(seed=0, buffer_size=SHUFFLE_ROWS)
        .map(lambda columns: {"ids": encode(columns["text"])}, batched=True, remove_columns=["text"])
        .map(pack, batched=True, remove_columns=["ids"])
        .with_format("numpy")
        .repeat(None)
    )
    yield from stream.iter(batch_size=task.rows, drop_last_batch=True)


def datasets_on_arrow(task: Task) -> Batches:
    """Streaming and split_dataset_by_node for the files alone; the rest with Arrow tables and numpy.

    It keeps no position, so it cannot resume.
    """
    encode = _array_encoder(task.tokenizer)
    random = np.random.default_rng(0)
    stream = _streamed(task).with_format("arrow").repeat(None)

    def documents() -> Iterator[Sequence[np.ndarray]]:
        for table in stream.iter(batch_size=SHUFFLE_ROWS):
            texts = table["text"].take(pa.array(random.permutation(len(table))))
            yield encode(texts.to_pylist())

    yield from _packed_in_batches(documents(), task)


def grain_as_documented(task: Task) -> Batches:
    """ParquetIterDataset, WindowShuffle, map, ConcatThenSplit, batch."""
    import grain
    from grain import experimental

    encode = _encoder(task.tokenizer)
    rows: Any = experimental.ParquetIterDataset(list(task.share))
    shuffled = experimental.WindowShuffleIterDataset(rows, window_size=SHUFFLE_ROWS, seed=0)
    yield from _grain_packed(
        shuffled.map(lambda row: {"tokens": np.array(encode([row["text"]])[0], np.int32)}), task, grain, experimental
    )


def grain_on_row_groups(task: Task) -> Batches:
    """A source of whole row groups, tokenised one row group at a time, then grain's ConcatThenSplit and batch."""
    import grain
    import pyarrow.parquet as pq
    from grain import experimental

    encode = _array_encoder(task.tokenizer)
    groups = [(path, group) for path in task.share for group in range(pq.ParquetFile(path).num_row_groups)]

    class Source:
        def __len__(self) -> int:
            return len(groups)

        def __getitem__(self, at: int) -> list[dict[str, np.ndarray]]:
            path, group = groups[at]
            texts = pq.ParquetFile(path).read_row_group(group, ["text"])["text"]
            order = np.random.default_rng(at).permutation(len(texts))
            return [{"tokens": ids} for ids in encode(texts.take(pa.array(order)).to_pylist())]

    class Rows(grain.experimental.FlatMapTransform):  # type: ignore[misc]
        max_fan_out = SHUFFLE_ROWS

        def flat_map(self, element: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
            return element

    read = (
        grain.MapDataset.source(Source())
        .shuffle(seed=0)
        .to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=1))
    )
    yield from _grain_packed(experimental.FlatMapIterDataset(read, Rows()), task, grain, experimental)


READERS: dict[str, Callable[[Task], Batches]] = {
    reader.__name__: reader
    for reader in (tpujob, datasets_as_documented, datasets_on_arrow, grain_as_documented, grain_on_row_groups)
}


def _grain_packed(documents: Any, task: Task, grain: Any, experimental: Any) -> Batches:
    packed = experimental.ConcatThenSplitIterDataset(documents, length_struct={"tokens": task.sequence_length + 1})

    def windows(element: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            "inputs": element["tokens"][:-1],
            "targets": element["tokens"][1:],
            "segment_ids": element["tokens_segment_ids"][:-1],
            "positions": element["tokens_positions"][:-1],
        }

    while True:
        yield from packed.map(windows).batch(task.rows, drop_remainder=True)


def _streamed(task: Task) -> Any:
    import datasets
    from datasets.distributed import split_dataset_by_node

    datasets.disable_progress_bars()
    stream = datasets.load_dataset("parquet", data_files=list(task.files), split="train", streaming=True)
    return split_dataset_by_node(stream, rank=0, world_size=task.processes)


def _encoder(tokenizer: str) -> Callable[[list[str]], list[list[int]]]:
    """A function from texts to ids, each with the end token, by the fastest documented call of the library."""
    if tokenizer == "bytes":
        return lambda texts: [[*text.encode(), 257] for text in texts]
    import tokenizers

    model = tokenizers.Tokenizer.from_file(tokenizer)
    end = model.token_to_id("</s>")
    assert end is not None
    return lambda texts: [[*encoded.ids, end] for encoded in model.encode_batch_fast(texts, add_special_tokens=False)]


def _array_encoder(tokenizer: str) -> Callable[[list[str]], list[np.ndarray]]:
    """The same for arrays; for bytes, without an intermediate list."""
    if tokenizer != "bytes":
        encode = _encoder(tokenizer)
        return lambda texts: [np.array(ids, np.int32) for ids in encode(texts)]
    return lambda texts: [np.append(np.frombuffer(text.encode(), np.uint8), np.int32(257)) for text in texts]


def _windows(tokens: np.ndarray, ends: np.ndarray, length: int) -> dict[str, np.ndarray]:
    """The windows that the tokens fill; each array is [windows, length]."""
    count = (len(tokens) - 1) // length
    used = count * length
    begins = np.zeros(len(tokens) + 1, bool)
    begins[ends] = True
    begun = begins[:used].reshape(count, length)
    index = np.arange(length, dtype=np.int32)
    return {
        "inputs": tokens[:used].reshape(count, length),
        "targets": tokens[1 : used + 1].reshape(count, length),
        "segment_ids": np.cumsum(begun, axis=1, dtype=np.int32) + 1,
        "positions": index - np.maximum.accumulate(np.where(begun, index, 0), axis=1),
    }


def _packed_in_batches(documents: Iterator[Sequence[np.ndarray]], task: Task) -> Batches:
    wanted = task.rows * task.sequence_length
    tokens, ends = np.empty(0, np.int32), np.empty(0, np.int64)
    for more in documents:
        lengths = np.array([len(ids) for ids in more])
        ends = np.concatenate([ends, np.cumsum(lengths) + len(tokens)])
        tokens = np.concatenate([tokens, *more])
        while len(tokens) > wanted:
            inside = ends[ends <= wanted]
            yield _windows(tokens[: wanted + 1], inside, task.sequence_length)
            tokens, ends = tokens[wanted:], ends[ends > wanted] - wanted
