"""Compares our training on this machine's CPU with MaxText's, step by step in turns, and with its matrix products.

    make bench-cpu          # python -m benchmarks.step_on_cpu

Two processes each have a compiled step of the same model on the same number of rows, and run steps in turns, so that
other work on the machine slows both. MaxText's is its whole training loop on synthetic data (`maxtext_cpu_loop.py`),
ours the compiled step of a configuration (`our_cpu_loop.py`). One device with all cores, float32, AdamW. The other part
compares the arithmetic rate of a model of more than 100 million parameters with that of a product of two large
matrices, also in turns.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAXTEXT = ROOT / ".cache" / "maxtext" / "bin" / "python"
ROUNDS = 4
LAYERS, EMBED, HEADS, MLP, VOCABULARY, ROWS, LENGTH = 8, 512, 8, 1408, 32_000, 4, 512


@dataclass
class Loop:
    """A process that runs one step, or multiplies two matrices, on each request."""

    process: subprocess.Popen[str]

    def take(self, what: str = "step") -> tuple[float, float]:
        """Sends a request; returns the answer (seconds, or operations per second) and the processor time."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("took "):
                _, found, cpu = line.split()
                return float(found), float(cpu)
        raise RuntimeError(f"{self.process.args!r} ended")


@contextlib.contextmanager
def loop(command: list[str]) -> Iterator[Loop]:
    """Starts a loop and runs its first step; ends it after the block. An error has the end of its standard error."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
        try:
            made = Loop(process)
            made.take()
            yield made
        except RuntimeError as error:
            raise RuntimeError(log.read_text()[-3000:]) from error
        finally:
            process.terminate()
            process.wait()


def ours(block: dict[str, object]) -> list[str]:
    """The command of our loop."""
    return [sys.executable, str(ROOT / "benchmarks" / "our_cpu_loop.py"), json.dumps(block)]


def block(remat: str, **model: object) -> dict[str, object]:
    """A configuration of the compared model."""
    return {
        "model": {
            "layers": LAYERS,
            "embedDim": EMBED,
            "heads": HEADS,
            "mlpDim": MLP,
            "vocabSize": VOCABULARY,
            "remat": remat,
            **model,
        },
        "data": {"path": "unused"},
        "steps": 1000,
        "batchSize": ROWS,
        "sequenceLength": LENGTH,
    }


def theirs(remat: str) -> list[str]:
    """The command of MaxText's loop on the same model."""
    settings = {
        "hardware": "cpu",
        "skip_jax_distributed_system": "true",
        "run_name": "compared",
        "base_output_directory": tempfile.gettempdir(),
        "enable_checkpointing": "false",
        "enable_goodput_recording": "false",
        "enable_tensorboard": "false",
        "dataset_type": "synthetic",
        "attention": "dot_product",
        "decoder_block": "llama2",
        "remat_policy": remat,
        "dtype": "float32",
        "weight_dtype": "float32",
        "base_emb_dim": EMBED,
        "base_mlp_dim": MLP,
        "base_num_query_heads": HEADS,
        "base_num_kv_heads": HEADS,
        "head_dim": EMBED // HEADS,
        "base_num_decoder_layers": LAYERS,
        "vocab_size": VOCABULARY,
        "max_target_length": LENGTH,
        "per_device_batch_size": ROWS,
        "steps": 1000,
    }
    words = [f"{key}={value}" for key, value in settings.items()]
    return [str(MAXTEXT), str(ROOT / "benchmarks" / "maxtext_cpu_loop.py"), *words]


def beside_maxtext() -> None:
    """Prints the seconds of each step of both, and the median ratio with its range."""
    with loop(ours(block("full"))) as mine, loop(theirs("full")) as other:
        pairs = []
        for _ in range(ROUNDS):
            pairs.append((mine.take(), other.take()))
            print(
                "ours, MaxText's: {:.2f} {:.2f} s, of processors {:.2f} {:.2f} s".format(
                    *(pair[number] for number in (0, 1) for pair in pairs[-1])
                ),
                flush=True,
            )
    for number, what in enumerate(("time", "processor time")):
        ratios = sorted(other[number] / mine[number] for mine, other in pairs)
        found = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"our tokens a second / theirs, by {what}: median {found}")


def beside_products() -> None:
    """Prints the arithmetic rate of a larger model's step, relative to that of a product of two matrices."""
    large = block("none", layers=12, embedDim=768, heads=12, mlpDim=2048) | {"batchSize": 2}
    with loop(ours(large)) as mine:
        parts = []
        for _ in range(ROUNDS):
            before, step, after = (mine.take(what)[0] for what in ("product", "rate", "product"))
            parts.append(step / ((before + after) / 2))
    print(f"arithmetic of the step / rate of a product  median {statistics.median(parts):.2f}, {parts}")


if __name__ == "__main__":
    beside_products()
    beside_maxtext()
