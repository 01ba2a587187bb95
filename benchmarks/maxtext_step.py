"""Compiles MaxText's train step for a described topology, in MaxText's own environment; see maxtext_compare.py.

MaxText's `train_compile` does all of the work; this program times the compilation and writes its result.
"""

import json
import os
import pathlib
import sys
import time

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "TPU_LOG_DIR": "disabled"}
os.environ |= {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_WORKER_HOSTNAMES": "localhost"}

import jax
import maxtext
from maxtext.trainers.pre_train import train_compile

SETTINGS = {
    "run_name": "compared",
    "base_output_directory": "unused",
    "enable_checkpointing": "false",
    "enable_goodput_recording": "false",
    "dataset_type": "synthetic",
    "attention": "flash",
    "remat_policy": "full",
}


def main(folder: pathlib.Path, settings: list[str]) -> None:
    """Writes program.txt and figures.json to the folder; `settings` are MaxText's, as key=value."""
    compile_lowered = jax.stages.Lowered.compile

    def compile_and_write(lowered: jax.stages.Lowered, *args: object, **options: object) -> jax.stages.Compiled:
        began, began_cpu = time.monotonic(), time.process_time()
        program = compile_lowered(lowered, *args, **options)
        took = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - began_cpu}
        memory = program.memory_analysis()
        took |= {"peak_bytes": memory.peak_memory_in_bytes, "argument_bytes": memory.argument_size_in_bytes}
        (folder / "program.txt").write_text(program.as_text())
        (folder / "figures.json").write_text(json.dumps(took))
        return program

    jax.stages.Lowered.compile = compile_and_write
    base = pathlib.Path(maxtext.__file__).parent / "configs" / "base.yml"
    train_compile.main(["train_compile", str(base), *(f"{key}={value}" for key, value in SETTINGS.items()), *settings])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
