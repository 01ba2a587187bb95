"""Activations of a text: a whole worker beside the bare forward pass of the same batches, and beside transformers.

One model (Qwen 2's architecture, random weights), one text of rows of many lengths, float16 values of two layers at
all tokens. In turns: the bare forward pass of our batches; a worker from tokens to files that are marked as done; two
loops over transformers with forward hooks, in a Python that has torch (--torch): as its documentation has it, and as
somebody would write it who cares.

    python -m benchmarks.extract [--torch PYTHON] [--lengths short]
"""

import collections
import json
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import parser, say, show
from tests.trainer.corpus.extract.rows_apart import one_to_a_sequence
from tpujob_trainer.corpus.extract import units
from tpujob_trainer.corpus.extract.batched import BatchedWork
from tpujob_trainer.corpus.extract.batches import Batch, batch_rows, bucket_lengths, plan_alone
from tpujob_trainer.corpus.extract.config import ExtractConfig
from tpujob_trainer.corpus.extract.layers import sites_of
from tpujob_trainer.corpus.extract.programs import Program, activations_program
from tpujob_trainer.corpus.extract.rows import Rows, Tokens
from tpujob_trainer.corpus.workers.claims import Claims
from tpujob_trainer.corpus.workers.engine import Engine
from tpujob_trainer.corpus.workers.progress_index import ProgressIndex
from tpujob_trainer.corpus.workers.uploads import Scratch, Uploads
from tpujob_trainer.corpus.workers.work import Packed
from tpujob_trainer.data import DataConfig, make_manifest
from tpujob_trainer.data.manifest.reader import RetryingReader, UnitReader
from tpujob_trainer.data.text import columns
from tpujob_trainer.data.text.tokenizer import ByteTokenizer
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.export import export_weights
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.tasks.extraction_estimate import forward_flops, rows_flops

VOCABULARY = 512


def shape_of(width: int) -> ModelShape:
    """The shape of a Qwen 2 model of eight layers with a given width."""
    return ModelShape(
        family="qwen2",
        layers=8,
        embed_dim=width,
        heads=width // 64,
        kv_heads=2,
        head_dim=64,
        mlp_dim=3 * width,
        vocab_size=VOCABULARY,
        qkv_bias=True,
        remat="none",
    )


LAYERS = (4, 5)
"""At about the relative depth of layers 15 to 18 of the 28 layers of Qwen2.5-7B."""
TOLERANCE = 2e-3
"""Of float16 values, relative to 1 plus their absolute value."""
LENGTH, BATCH, UNIT_ROWS = 256, 8, 128
"""A unit has as many rows as the careful loop sorts at a time."""

TORCH_PROGRAM = Path(__file__).with_name("extract_torch.py")
FORWARD, WORKER = "bare forward", "worker"
WAYS = ("documented", "careful")
"""The two loops over transformers; `extract_torch.py` describes them."""


LENGTHS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "cut": lambda chance, rows: LENGTH * chance.lognormal(0.0, 1.0, rows),
    "uniform": lambda chance, rows: chance.uniform(0, LENGTH, rows),
    "short": lambda chance, rows: chance.uniform(0, LENGTH / 8, rows),
    "long-tailed": lambda chance, rows: LENGTH / 12 * chance.lognormal(0.0, 1.0, rows),
}
"""Distributions of row lengths, in tokens, before rows are cut at LENGTH: web text with half of the rows full; uniform;
sentences; many short rows and a few full ones."""


def corpus(folder: Path, rows: int, kind: str) -> list[list[int]]:
    """Writes rows of random tokens with lengths of a distribution; returns them."""
    chance = np.random.default_rng(0)
    lengths = np.minimum(LENGTH, LENGTHS[kind](chance, rows).astype(int) + 1)
    made = [chance.integers(0, VOCABULARY, length).tolist() for length in lengths]
    pq.write_table(pa.table({"tokens": made}), folder / "tokens.parquet", row_group_size=UNIT_ROWS * 4)
    return made


class Metered(BatchedWork):
    """Measures the processor time of its threads outside the forward pass."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cpu: dict[str, float] = collections.defaultdict(float)
        self.busy_seconds = 0.0
        """The time for which the devices had at least one batch."""
        self._under_way, self._since, self._lock = 0, 0.0, threading.Lock()

    def read(self, unit: int) -> Rows:
        return self._timed("read and tokenise", super().read, unit)

    def pack(self, *args: Any) -> Packed:
        return self._timed("pack", super().pack, *args)

    def filled(self, *args: Any) -> Any:
        return self._timed("fill batches", super().filled, *args)

    def _started(self, sequences: Any) -> Any:
        self._count(1)
        return super()._started(sequences)

    def _fetch(self, values: Any, batch: Any, outputs: Any) -> None:
        jax.block_until_ready(outputs)
        self._count(-1)
        self._timed("fetch values", super()._fetch, values, batch, outputs)

    def _count(self, more: int) -> None:
        with self._lock:
            if self._under_way:
                self.busy_seconds += time.monotonic() - self._since
            self._since = time.monotonic()
            self._under_way += more

    def _timed[T](self, what: str, function: Callable[..., T], *args: Any) -> T:
        began = time.thread_time()
        try:
            return function(*args)
        finally:
            self.cpu[what] += time.thread_time() - began


def make_work(folder: Path, forward: Program) -> tuple[Metered, Any]:
    config = ExtractConfig(layers=LAYERS, unit_rows=UNIT_ROWS)
    source = DataConfig(path=f"{folder}/*.parquet", tokens_column="tokens", tokenizer="bytes")
    manifest = units.cut(make_manifest(source), UNIT_ROWS, None, field="spec.trainer.extract")
    reader = RetryingReader(UnitReader(manifest), 10)

    def kind(column: Any, rows: np.ndarray) -> Any:
        return columns.tokens(column, rows, vocab_size=VOCABULARY)

    tokens = Tokens(reader, ByteTokenizer(), kind, is_text=False, longest=LENGTH)
    first = units.first_samples(manifest)
    return Metered(
        config,
        tokens,
        forward,
        buckets=bucket_lengths(LENGTH, config.buckets),
        batch=BATCH,
        first_sample=lambda unit: int(first[unit]),
    ), manifest


@dataclass(frozen=True)
class Seconds:
    """Wall time and processor time for all rows."""

    wall: float
    cpu: float
    """Of all threads of the process: other work on the machine hardly affects it."""


def measured(function: Callable[[], Any]) -> Seconds:
    """Runs a function; returns its seconds."""
    began, cpu_began = time.monotonic(), time.process_time()
    function()
    return Seconds(time.monotonic() - began, time.process_time() - cpu_began)


def product_rate() -> float:
    """Operations per second of processor time of a float32 matrix product of the model's sizes.

    The best of ten measurements, which differ by up to a factor of two.
    """
    tokens, width = BATCH * LENGTH, 256
    left, right = jax.numpy.ones((tokens, width)), jax.numpy.ones((width, 3 * width))
    product = jax.jit(jax.numpy.matmul)
    jax.block_until_ready(product(left, right))
    times = 50

    def some() -> None:
        for _ in range(times):
            jax.block_until_ready(product(left, right))

    return times * 2 * tokens * width * 3 * width / min(measured(some).cpu for _ in range(10))


def seconds_of_a_position(forward: Program, length: int) -> float:
    """The processor seconds per position of the forward pass, in full sequences of one length."""
    size = batch_rows(length, longest=LENGTH, rows=BATCH)
    sequences = one_to_a_sequence(np.zeros((size, length), np.int32), np.full(size, length, np.int32))
    jax.block_until_ready(forward(sequences))
    return min(measured(lambda: jax.block_until_ready(forward(sequences))).cpu for _ in range(5)) / (size * length)


def held(units: list[Rows], plan: Callable[[Rows], list[Batch]]) -> float:
    """The share of the computed positions that contain a token."""
    computed = sum(batch.size * batch.length for unit in units for batch in plan(unit))
    return sum(int(unit.lengths.sum()) for unit in units) / computed


def bare(work: BatchedWork, num_units: int) -> Seconds:
    """The seconds of the forward pass of all batches, and nothing else."""
    batches = []
    for unit in range(num_units):
        rows = work.read(unit)
        batches += [work.filled(rows, batch) for batch in work.plan(rows)]

    def forward() -> None:
        for batch in batches:
            outputs = work._program(batch)  # noqa: SLF001
        jax.block_until_ready(outputs)

    return measured(forward)


def whole(work: BatchedWork, num_units: int, out: Path) -> Seconds:
    """The seconds of a worker, from the first claim until the last unit is done."""
    bucket, worker = open_bucket(out), "bench-0-0"
    scratch = Scratch(str(out / "scratch"), 1 << 30, field="spec.trainer.extract.scratch")
    engine = Engine(
        bucket,
        Claims(bucket, worker),
        ProgressIndex(bucket, worker, num_units),
        Uploads(str(out)),
        scratch,
        worker=worker,
        units=num_units,
        stop_requested=lambda: False,
    )

    def run() -> None:
        if not engine.run(work):
            raise SystemExit("not all units are done")

    return measured(run)


class Torch:
    """A loop over transformers in its own process, which has loaded the model and is compiled."""

    def __init__(self, python: str, model: Path, way: str, *, is_compiled: bool) -> None:
        layers = ",".join(map(str, LAYERS))
        arguments = [python, str(TORCH_PROGRAM), str(model), str(BATCH), str(LENGTH), layers, way]
        arguments += ["--compile"] if is_compiled and way == "careful" else []
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def __call__(self, out: Path) -> Seconds:
        """Computes all rows and writes the files to `out`; returns the seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{out}\n")
        self._process.stdin.flush()
        wall, cpu = map(float, self._answer().split())
        return Seconds(wall, cpu)

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("transformers ended; its error is above")
        return line


def require_equal(ours: Path, theirs: Path, rows: list[list[int]]) -> float:
    """The largest difference from the documented loop; exits if it exceeds `TOLERANCE`."""
    files = sorted((ours / "out").iterdir())
    found = pa.concat_tables(pq.read_table(file) for file in files).sort_by("sample")
    worst = 0.0
    for column, number in ((f"layer_{number}_residual", str(number)) for number in LAYERS):
        mine = np.concatenate([np.stack(row).astype(np.float32) for row in found[column].to_numpy()])
        wanted = np.concatenate([np.load(theirs / f"{at}.npz")[number] for at in range(0, len(rows), BATCH)])
        worst = max(worst, float(np.max(np.abs(mine - wanted.astype(np.float32)) / (1 + np.abs(mine)))))
    if worst > TOLERANCE:
        raise SystemExit(f"the outputs differ by {worst}")
    return worst


def compared(ours: list[Seconds], other: list[Seconds]) -> str:
    """Our speed relative to the other's: the median and the range over the rounds, as text."""
    wall = [b.wall / a.wall for a, b in zip(ours, other, strict=True)]
    cpu = [b.cpu / a.cpu for a, b in zip(ours, other, strict=True)]
    return (
        f"{statistics.median(wall):.2f} of its speed by median, {min(wall):.2f} to {max(wall):.2f} over the rounds; "
        f"by processor time {statistics.median(cpu):.2f}, {min(cpu):.2f} to {max(cpu):.2f}"
    )


def shares(forward: Seconds, worker: Seconds, beside: Mapping[str, float]) -> dict[str, float]:
    """Shares of a worker's processor time: the bare forward pass, the other measured parts, and the rest."""
    found = {"forward pass": forward.cpu / worker.cpu}
    found |= {what: beside[what] / worker.cpu for what in sorted(beside)}
    return found | {"all else": 1 - sum(found.values())}


@dataclass(frozen=True)
class Round:
    """One turn of each."""

    seconds: dict[str, Seconds]
    shares: dict[str, float]
    """Of a worker's processor time."""
    busy: float
    """Share of a worker's time for which the devices had a batch."""


def play(work: Metered, num_units: int, loops: Mapping[str, Torch], folder: Path) -> Round:
    """Runs the bare forward pass, a worker and the loops over transformers; `folder` gets one for each output."""
    work.cpu.clear()
    work.busy_seconds = 0.0
    seconds = {FORWARD: bare(work, num_units)}
    for what in (WORKER, *loops):
        out = folder / what
        out.mkdir(parents=True)
        seconds[what] = loops[what](out) if what in loops else whole(work, num_units, out)
    busy = work.busy_seconds / seconds[WORKER].wall
    show([f"{what}: {each.wall:.2f} s, {each.cpu:.2f} s of processor time" for what, each in seconds.items()])
    return Round(seconds, shares(seconds[FORWARD], seconds[WORKER], work.cpu), busy)


def summary(rounds: list[Round], num_rows: int) -> Iterator[str]:
    """The medians of the rounds, as lines."""
    for what in rounds[0].seconds:
        wall, cpu = (
            statistics.median(getattr(each.seconds[what], name) for each in rounds) for name in ("wall", "cpu")
        )
        yield f"{what:24} {wall:7.2f} s  {num_rows / wall:7.1f} rows/s  {cpu:7.2f} s of processor time"
    for what in rounds[0].shares:
        yield f"processor time of a worker: {what:20} {statistics.median(each.shares[what] for each in rounds):6.1%}"
    busy = [each.busy for each in rounds]
    yield f"the devices of a worker had a batch for {statistics.median(busy):.1%} of the time, {min(busy):.1%} at least"
    worker = [each.seconds[WORKER] for each in rounds]
    for what in rounds[0].seconds.keys() - {WORKER}:
        yield f"worker / {what}: {compared(worker, [each.seconds[what] for each in rounds])}"


def costs(work: Metered, forward: Program, units: list[Rows]) -> Iterator[str]:
    """What a position costs, and how many of them hold a token, as lines."""
    buckets = bucket_lengths(LENGTH, ExtractConfig(layers=LAYERS).buckets)
    for length in buckets:
        yield f"a position in sequences of {length}: {seconds_of_a_position(forward, length) * 1e6:.0f} µs"
    for what, plan in (("packed", work.plan), ("alone", lambda unit: plan_alone(unit.lengths, buckets, BATCH))):
        yield f"positions that hold a token, rows {what}: {held(units, plan):.2f}"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, default=512)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--width", type=int, default=256, help="of the model, a multiple of 128")
    arguments.add_argument("--lengths", choices=sorted(LENGTHS), default="cut", help="of the rows")
    arguments.add_argument("--torch", help="a Python with torch and transformers")
    arguments.add_argument("--compile", action="store_true", help="torch.compile for the careful loop")
    options = arguments.parse_args()
    shape = shape_of(options.width)
    model = Model(shape, build_mesh(slices=1))
    weights = jax.jit(lambda: model.init(0), out_shardings=model.shardings)()
    sites = sites_of(LAYERS, ["residual"], shape.layers)
    forward = activations_program(model, weights, sites, positions="all", dtype="float16")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = corpus(folder, options.rows, options.lengths)
        work, manifest = make_work(folder, forward)
        work.compile()
        loops: dict[str, Torch] = {}
        if options.torch:
            export_weights(str(folder / "model"), shape, weights, max_positions=LENGTH, dtype="F32")
            (folder / "model" / "rows.json").write_text(json.dumps(rows))
            loops = {way: Torch(options.torch, folder / "model", way, is_compiled=options.compile) for way in WAYS}
        rounds = [play(work, manifest.num_units, loops, folder / str(number)) for number in range(options.rounds)]
        if loops:
            worst = require_equal(folder / "0" / WORKER, folder / "0" / "documented", rows)
            say(f"largest difference of both outputs: {worst:.1e}")
        for loop in loops.values():
            loop.close()
        lengths = np.array([len(row) for row in rows])
        say(
            f"{len(rows)} rows ({options.lengths}), {lengths.sum()} tokens, medians of {options.rounds} rounds in turns"
        )
        show(summary(rounds, len(rows)))
        show(costs(work, forward, [work.read(unit) for unit in range(manifest.num_units)]))
    least = rows_flops(lengths, lambda length: forward_flops(shape, sites, length)) / product_rate()
    say(f"the operations of these tokens, at the rate of a product of two matrices: {least:.2f} s of processor time")


if __name__ == "__main__":
    main()
