"""How fast one core turns parquet into batches: read, shuffle, tokenise, pack, put together; beside datasets and grain.

    make bench-data         # python -m benchmarks.data [--megabytes 48] [--seconds 3] [--repeat 2] [--tokenizer bpe]

The text is real: the source of Python's standard library and of the installed packages, in documents of about 3 000
bytes, as zstd parquet with 250 rows per row group; a byte-level BPE of 16 000 tokens is trained on it. Each reader of
`data_readers.py` runs in its own process, on one core, in turns. CPU time is measured, not wall time, so that other
work on the machine has little effect; compare figures only within a run. For scale: a host of four v6e chips that
trains an 8B model consumes about 30 000 tokens a second.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tokenizers

from benchmarks.data_readers import READERS, Task

FILES, COPIES = 8, 8
"""Copies are hard links to the same files: enough row groups for our units, so that our reader keeps none decoded."""
ROW_GROUP_ROWS = 250
PROCESSES = 4
"""A divisor of the number of files: otherwise, split_dataset_by_node reads everything on every process."""
DOCUMENT_BYTES = 3000
SHAPES = ((2, 8192), (16, 512))
"""Rows of one process, and sequence length."""
OURS, SPEED = "tpujob", "tokens_per_core_second"
PACKAGES = ("datasets", "grain", "pyarrow", "tokenizers", "numpy")


def documents(limit_bytes: int) -> Iterator[str]:
    """Parts of source files, cut at empty lines."""
    roots = [Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))]
    total = 0
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            if root == roots[0] and "site-packages" in path.parts:
                continue
            document = ""
            for part in re.split(r"(?<=\n)\n", path.read_text(errors="replace")):
                document += part
                if len(document) > DOCUMENT_BYTES:
                    yield document
                    total, document = total + len(document), ""
            if total > limit_bytes:
                return


def write_data(folder: Path, megabytes: int) -> tuple[str, ...]:
    """Writes the files of the data set, with about equal numbers of rows; returns their paths."""
    texts = list(documents(megabytes << 20))
    order = np.random.default_rng(0).permutation(len(texts))
    paths = []
    for number, part in enumerate(np.array_split(order, FILES)):
        path = folder / f"{number}.parquet"
        table = pa.table({"text": [texts[at] for at in part]})
        pq.write_table(table, path, row_group_size=ROW_GROUP_ROWS, compression="zstd")
        paths.append(str(path))
        for copy in range(1, COPIES):
            other = folder / f"{number}-{copy}.parquet"
            other.hardlink_to(path)
            paths.append(str(other))
    return tuple(paths)


def write_tokenizer(folder: Path, path: str) -> Path:
    """Trains a byte-level BPE of 16 000 tokens on the rows of a file; returns the path of the tokenizer."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=16_000, special_tokens=["</s>"], show_progress=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    model.train_from_iterator(pq.read_table(path)["text"].to_pylist(), trainer)
    target = folder / "tokenizer.json"
    target.write_text(model.to_str())
    return target


def measure(reader: str, task: Task, seconds: float) -> dict[str, float]:
    """Tokens per second of CPU time of all threads, the share of a core, and the memory peak."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    batches = READERS[reader](task)
    first = next(batches)
    shapes = {key: (np.asarray(value).shape, np.asarray(value).dtype.kind) for key, value in first.items()}
    assert set(shapes.values()) == {((task.rows, task.sequence_length), "i")}, shapes
    began, clock, made = time.process_time(), time.monotonic(), 0
    while time.process_time() - began < seconds:
        next(batches)
        made += 1
    spent = time.process_time() - began
    return {
        SPEED: made * task.rows * task.sequence_length / spent,
        "cpu_share": spent / (time.monotonic() - clock),
        "peak_mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure_elsewhere(reader: str, task: Task, seconds: float, cache: str) -> dict[str, float]:
    """The figures of `measure` in a new process on one core."""
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "benchmarks.data", "--reader", reader, "--task", json.dumps(asdict(task))]
    environment = {**os.environ, "HF_HOME": cache, "HF_DATASETS_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    result = subprocess.run(
        [*command, "--seconds", str(seconds)],
        check=True, stdout=subprocess.PIPE, env=environment, preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )  # fmt: skip
    found: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return found


def compare(task: Task, seconds: float, repeat: int, cache: str) -> dict[str, dict[str, float]]:
    """The median figures of each reader over `repeat` rounds; each round runs all readers in turn."""
    rounds = [{name: measure_elsewhere(name, task, seconds, cache) for name in READERS} for _ in range(repeat)]
    return {
        name: {key: statistics.median(found[name][key] for found in rounds) for key in rounds[0][name]}
        for name in READERS
    }


def named(task: Task) -> str:
    """The name of a task's column in the table."""
    kind = "bytes" if task.tokenizer == "bytes" else "BPE"
    return f"{kind}, {task.rows} × {task.sequence_length}"


def table(columns: dict[str, dict[str, dict[str, float]]]) -> Iterator[str]:
    """Lines of a Markdown table: million tokens per second of one core, by reader and column."""

    def row(name: str, values: Iterable[float]) -> str:
        return " | ".join((f"| {name}", *(f"{value:.3g}" for value in values))) + " |"

    def best(figures: dict[str, dict[str, float]], part: str) -> float:
        return max(figure[SPEED] for name, figure in figures.items() if name != OURS and name.endswith(part))

    yield " | ".join(("| million tokens per second and core", *columns)) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for name in READERS:
        yield row(name.replace("_", " "), (figures[name][SPEED] / 1e6 for figures in columns.values()))
    for part, what in (("documented", "best as documented"), ("", "best of all")):
        ratios = (figures[OURS][SPEED] / best(figures, part) for figures in columns.values())
        yield row(f"{OURS} / {what}", ratios)
    yield row("peak MiB, ours", (figures[OURS]["peak_mebibytes"] for figures in columns.values()))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--megabytes", type=int, default=48)
    arguments.add_argument("--seconds", type=float, default=3, help="CPU seconds of each measurement")
    arguments.add_argument("--repeat", type=int, default=2)
    arguments.add_argument("--tokenizer", choices=("bytes", "bpe"), help="one of the two; default: both")
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--reader", help=argparse.SUPPRESS)
    arguments.add_argument("--task", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.reader:
        print(json.dumps(measure(given.reader, Task(**json.loads(given.task)), given.seconds)), flush=True)
        os._exit(0)  # does not wait for threads that read ahead
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    print(f"Python {platform.python_version()}, {versions}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    columns = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "data")
        folder.mkdir()
        files = write_data(folder, given.megabytes)
        tokenizers_there = {"bytes": "bytes", "bpe": str(write_tokenizer(Path(name), files[0]))}
        for tokenizer in [tokenizers_there[given.tokenizer]] if given.tokenizer else tokenizers_there.values():
            for rows, length in SHAPES:
                task = Task(str(folder), files, tokenizer, rows, length, PROCESSES)
                columns[named(task)] = compare(task, given.seconds, given.repeat, f"{name}/cache")
    print(json.dumps(columns) if given.json else "\n".join(table(columns)), flush=True)


if __name__ == "__main__":
    main()
