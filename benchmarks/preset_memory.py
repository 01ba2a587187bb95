"""Memory of a training step of each preset, compiled for a slice that fits it, without a TPU.

    python -m benchmarks.preset_memory [--write] [PRESET …]

`make preset-memory` installs libtpu into .cache/libtpu first. Each step is compiled as by `tpujob check --compile`:
AdamW in float32, full rematerialisation, one row for each chip. `--write` puts the table into docs/reference/models.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "models.md"
BEGIN, END = "<!-- table: make preset-memory -->", "<!-- end of presets -->"
GIB = 1 << 30
CASES: dict[str, tuple[str, int]] = {
    "olmo2-1b": ("v5e-8", 8),
    "gemma-2b": ("v5e-16", 16),
    "smollm3-3b": ("v5e-16", 16),
    "phi3-mini-4k": ("v5e-16", 16),
    "olmo2-7b": ("v5e-32", 32),
    "gemma-7b": ("v5e-32", 32),
    "phi-4": ("v5e-64", 64),
    "qwen1.5-moe-a2.7b": ("v5e-32", 32),
    "gpt-oss-20b": ("v6e-32", 32),
    "gpt-oss-120b": ("v5p-256", 128),
    "mixtral-8x22b": ("v5p-128", 64),
    "llama3.1-405b": ("v5p-512", 256),
    "moonlight-16b-a3b": ("v6e-64", 64),
    "deepseek-v3": ("v5p-1024", 512),
}
"""By preset: the slice, and the number of its chips."""
LENGTH = 4096
"""The positions of a row."""


def compiled(preset: str) -> dict[str, Any]:
    """The JSON output of `tpujob check --compile` for a job with this preset."""
    accelerator, rows = CASES[preset]
    trainer = {
        "model": {"preset": preset},
        "data": {"path": "gs://my-bucket/*.parquet", "tokenizer": "bytes"},
        "batchSize": rows,
        "sequenceLength": LENGTH,
        "steps": 100,
    }
    spec = {"accelerator": accelerator, "checkpointDir": "gs://my-bucket/run", "trainer": trainer}
    job = {"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob", "metadata": {"name": "memory"}, "spec": spec}
    with tempfile.TemporaryDirectory(prefix="preset-memory-") as folder:
        file = Path(folder) / "job.yaml"
        file.write_text(json.dumps(job))
        done = subprocess.run(
            [sys.executable, "-m", "tpujob", "check", str(file), "--compile", "-o", "json"],
            env={**os.environ, "PYTHONPATH": str(ROOT / ".cache" / "libtpu")},
            capture_output=True,
            text=True,
            check=False,
        )
    if not done.stdout:
        raise SystemExit(f"{preset}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def row(preset: str, found: dict[str, Any]) -> str:
    step = found["compiled"]["step"]
    mesh = " × ".join(f"{axis} {size}" for axis, size in step["mesh"].items())
    return (
        f"| {preset} | {found['trainer']['parameters'] / 1e9:.2f} | {CASES[preset][0]} | {mesh} | "
        f"{step['peak_bytes'] / GIB:.1f} of {step['hbm_limit_bytes'] / GIB:.1f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", default=[*CASES])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = ["| preset | 10⁹ parameters | slice | mesh | GiB of each chip |", "| --- " * 5 + "|"]
    for preset in options.presets:
        lines.append(row(preset, compiled(preset)))
        sys.stdout.write(f"{lines[-1]}\n")
        sys.stdout.flush()
    if options.write:
        page = PAGE.read_text()
        table = "\n".join(lines)
        PAGE.write_text(f"{page.split(BEGIN)[0]}{BEGIN}\n\n{table}\n\n{END}{page.split(END)[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
