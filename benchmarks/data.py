"""How fast one core turns parquet into batches: read, shuffle, tokenise, pack, put together.

    python benchmarks/data.py [--megabytes 64] [--batch-size 8] [--sequence-length 8192]

Writes a data set of made-up English (rows of 2 000 bytes on average, zstd, row groups of 1 000 rows) to a temporary
folder, and reads it with one thread through the loader that training uses. CPU seconds are counted, not the clock's, so
that other work on the machine does not matter. For scale: a host of four v6e chips that trains an 8B model eats about
30 000 tokens a second.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tokenizers

from tpujob_trainer.data import BatchLoader, DataConfig, load_tokenizer, make_manifest, plan_lanes

_LETTERS = np.array(list("etaoinshrdlcumwfgypbvk"))


def made_up_text(random: np.random.Generator, num_rows: int) -> list[str]:
    """Rows of words from a vocabulary of 20 000, few of them frequent, as in a language."""
    lengths = random.integers(1, 12, 20_000)
    words = ["".join(random.choice(_LETTERS, length)) for length in lengths]
    picked = np.minimum(random.zipf(1.3, num_rows * 320), len(words)) - 1
    return [" ".join(words[at] for at in row) for row in np.split(picked, num_rows)]


def write_data(folder: Path, megabytes: int) -> None:
    """Four files of together about so much text."""
    random = np.random.default_rng(0)
    for number in range(4):
        rows = made_up_text(random, megabytes * 125)
        pq.write_table(pa.table({"text": rows}), folder / f"{number}.parquet", row_group_size=1000, compression="zstd")


def write_tokenizer(folder: Path) -> Path:
    """A byte-level BPE of 8 000 tokens, trained on the data's first rows."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=8000, special_tokens=["</s>"], show_progress=False)
    rows = pq.ParquetFile(folder / "0.parquet").read_row_group(0)["text"].to_pylist()
    model.train_from_iterator(rows, trainer)
    path = folder / "tokenizer.json"
    path.write_text(model.to_str())
    return path


def measure(config: DataConfig, batch_size: int, sequence_length: int) -> dict[str, float | int | str]:
    """Tokens for each second of CPU, over about one epoch of bytes or eight seconds, whichever is first."""
    tokenizer = load_tokenizer(config)
    manifest = make_manifest(config, batch_size=batch_size)
    plan = plan_lanes(manifest, config, batch_size=batch_size, seed=0)
    batches = max(1, int(manifest.unit_num_bytes.sum()) // (batch_size * sequence_length))
    with BatchLoader(manifest, tokenizer, plan, sequence_length, rows=range(batch_size), prefetch=0) as loader:
        next(loader)
        began, made = time.process_time(), 0
        while made < batches and time.process_time() - began < 8:
            next(loader)
            made += 1
        seconds = time.process_time() - began
    return {
        "tokenizer": Path(config.tokenizer).name,
        "tokens": made * batch_size * sequence_length,
        "cpu_seconds": round(seconds, 3),
        "tokens_per_second_per_core": round(made * batch_size * sequence_length / seconds),
        "lanes": plan.lanes,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--megabytes", type=int, default=64)
    arguments.add_argument("--batch-size", type=int, default=8)
    arguments.add_argument("--sequence-length", type=int, default=8192)
    given = arguments.parse_args()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, given.megabytes)
        for tokenizer in ("bytes", str(write_tokenizer(folder))):
            config = DataConfig(path=f"{folder}/*.parquet", tokenizer=tokenizer)
            print(json.dumps(measure(config, given.batch_size, given.sequence_length)))


if __name__ == "__main__":
    main()
