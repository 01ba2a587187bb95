"""Activations of a text: a whole worker beside the bare forward pass of the same batches, and beside transformers.

One model (Qwen 2's architecture, random weights), one text of rows of many lengths, float16 values of four layers at
all tokens. In turns: the bare forward pass of our batches; a worker from tokens to files that are marked as done; a
loop over transformers with forward hooks, in a Python that has torch (--torch). Run it from the repository's root:

    python benchmarks/extract.py [--torch PYTHON]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tpujob_trainer.data import DataConfig, make_manifest
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.data.manifest.retrying_reader import RetryingReader
from tpujob_trainer.data.text import columns
from tpujob_trainer.data.text.tokenizer import ByteTokenizer
from tpujob_trainer.extract import units
from tpujob_trainer.extract.activations import Activations, Tokens
from tpujob_trainer.extract.batches import bucket_lengths, plan_batches
from tpujob_trainer.extract.config import ExtractConfig
from tpujob_trainer.extract.forward import Forward
from tpujob_trainer.extract.layers import sites_of
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh import build_mesh
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.weights.export import export_weights
from tpujob_trainer.workers.board import Board
from tpujob_trainer.workers.claims import Claims
from tpujob_trainer.workers.engine import Engine
from tpujob_trainer.workers.uploads import Scratch, Uploads

SHAPE = ModelShape(
    family="qwen2",
    layers=14,
    embed_dim=384,
    heads=6,
    kv_heads=2,
    head_dim=64,
    mlp_dim=1152,
    vocab_size=512,
    qkv_bias=True,
    remat="none",
)
LAYERS = (7, 8, 9, 10)
"""About as deep in it as 15 to 18 in the 28 layers of Qwen2.5-7B."""
LENGTH, BATCH, UNIT_ROWS = 256, 16, 64

HOOKS = """
import json, sys, time
import numpy as np, torch
from transformers import AutoModelForCausalLM
folder, out, batch, length, *layers = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
torch.set_num_threads(int(torch.get_num_threads()))
kept = {}
for number in map(int, layers):
    def hook(module, inputs, output, number=number):
        kept[number] = (output[0] if isinstance(output, tuple) else output).half().numpy()
    model.model.layers[number].register_forward_hook(hook)
rows = json.load(open(f"{folder}/rows.json"))
began = time.monotonic()
for first in range(0, len(rows), int(batch)):
    some = rows[first : first + int(batch)]
    tokens = torch.zeros((len(some), int(length)), dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for place, row in enumerate(some):
        tokens[place, : len(row)] = torch.tensor(row)
        mask[place, : len(row)] = 1
    with torch.no_grad():
        model.model(tokens, attention_mask=mask, use_cache=False)
    real = {str(n): np.concatenate([v[i, : len(r)] for i, r in enumerate(some)]) for n, v in kept.items()}
    np.savez(f"{out}/{first}.npz", **real)
print(time.monotonic() - began)
"""
"""As the documentation of transformers has it: rows filled up to the length, hooks, a file for each batch."""


def corpus(folder: Path, rows: int) -> list[list[int]]:
    """Rows of tokens with lengths like those of web text cut off at LENGTH: half of them are full."""
    chance = np.random.default_rng(0)
    lengths = np.minimum(LENGTH, (LENGTH * chance.lognormal(0.0, 1.0, rows)).astype(int) + 1)
    made = [chance.integers(0, SHAPE.vocab_size, length).tolist() for length in lengths]
    pq.write_table(pa.table({"tokens": made}), folder / "tokens.parquet", row_group_size=UNIT_ROWS * 4)
    return made


def make_work(folder: Path, forward: Forward) -> tuple[Activations, Any]:
    config = ExtractConfig(layers=LAYERS, unit_rows=UNIT_ROWS)
    source = DataConfig(path=f"{folder}/*.parquet", tokens_column="tokens", tokenizer="bytes")
    manifest = units.cut(make_manifest(source), UNIT_ROWS, None)
    reader = RetryingReader(UnitReader(manifest), 10)

    def kind(column: Any, rows: np.ndarray) -> Any:
        return columns.tokens(column, rows, vocab_size=SHAPE.vocab_size)

    tokens = Tokens(reader, ByteTokenizer(), kind, is_text=False, longest=LENGTH)
    first = units.first_samples(manifest)
    return Activations(
        config,
        tokens,
        forward,
        buckets=bucket_lengths(LENGTH, config.buckets),
        batch=BATCH,
        first_sample=lambda unit: int(first[unit]),
    ), manifest


def bare(work: Activations, num_units: int) -> float:
    """Seconds for the forward pass of all batches, and nothing else."""
    batches = []
    for unit in range(num_units):
        rows = work.read(unit)
        batches += [work._filled(rows, b) for b in plan_batches(rows.lengths, work._buckets, work._batch)]  # noqa: SLF001
    began = time.monotonic()
    for tokens, lengths in batches:
        outputs = work._forward(tokens, lengths)  # noqa: SLF001
    jax.block_until_ready(outputs)
    return time.monotonic() - began


def whole(work: Activations, num_units: int, out: Path) -> float:
    """Seconds of a worker, from the first claim to the last unit that is done."""
    bucket, worker = open_bucket(out), "bench-0-0"
    scratch = Scratch(str(out / "scratch"), 1 << 30)
    engine = Engine(
        bucket,
        Claims(bucket, worker),
        Board(bucket, worker, num_units),
        Uploads(str(out)),
        scratch,
        worker=worker,
        units=num_units,
        stop_requested=lambda: False,
    )
    began = time.monotonic()
    if not engine.run(work):
        raise SystemExit("not all units are done")
    return time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--torch", help="a Python with torch and transformers")
    options = parser.parse_args()
    model = Model(SHAPE, build_mesh(slices=1))
    weights = jax.jit(lambda: model.init(0), out_shardings=model.shardings)()
    sites = sites_of(LAYERS, ["residual"], SHAPE.layers)
    forward = Forward(model, weights, sites, positions="all", dtype="float16")
    seconds: dict[str, list[float]] = {"bare forward": [], "worker": [], "transformers with hooks": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = corpus(folder, options.rows)
        work, manifest = make_work(folder, forward)
        work.compile()
        if options.torch:
            export_weights(str(folder / "model"), SHAPE, weights, max_positions=LENGTH, dtype="F32")
            (folder / "model" / "rows.json").write_text(json.dumps(rows))
        for number in range(options.rounds):
            seconds["bare forward"].append(bare(work, manifest.num_units))
            (folder / f"out-{number}").mkdir()
            seconds["worker"].append(whole(work, manifest.num_units, folder / f"out-{number}"))
            if options.torch:
                (folder / f"hooks-{number}").mkdir()
                arguments = [folder / "model", folder / f"hooks-{number}", BATCH, LENGTH, *LAYERS]
                told = subprocess.run(
                    [options.torch, "-c", HOOKS, *map(str, arguments)], check=True, capture_output=True, text=True
                )
                seconds["transformers with hooks"].append(float(told.stdout.split()[-1]))
    tokens = sum(map(len, rows))
    print(f"{len(rows)} rows, {tokens} tokens, medians of {options.rounds} rounds in turns")
    medians = {what: statistics.median(each) for what, each in seconds.items() if each}
    for what, median in medians.items():
        print(f"{what:24} {median:7.2f} s  {len(rows) / median:7.1f} rows/s  {[round(s, 2) for s in seconds[what]]}")
    print(f"worker / bare forward: {medians['bare forward'] / medians['worker']:.2f} of its speed")
    if options.torch:
        print(f"worker / transformers with hooks: {medians['transformers with hooks'] / medians['worker']:.2f} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
