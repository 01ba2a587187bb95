"""Compiles our train step for a described topology, and writes its time and memory; see maxtext_compare.py."""

import json
import math
import pathlib
import sys
import time

from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.train.compile.program import lower_step, prepare_environment


def main(
    folder: pathlib.Path,
    preset: str,
    generation: str,
    shape: str,
    slices: int,
    rows: int,
    length: int,
    quantization: str,
) -> None:
    """Writes program.txt and figures.json to the folder; `rows` are those of one device."""
    prepare_environment()
    sizes = tuple(int(size) for size in shape.split("x"))
    block = {
        "model": {"preset": preset} | ({"quantization": quantization} if quantization else {}),
        "data": {"path": "unused", "tokenizer": "unused"},
        "steps": 1000,
        "batchSize": rows * slices * math.prod(sizes),
        "sequenceLength": length,
    }
    *_, lowered = lower_step(parse_config(block), generation=generation, shape=sizes, slices=slices)
    began, began_cpu = time.monotonic(), time.process_time()
    program = lowered.compile()
    took = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - began_cpu}
    memory = program.memory_analysis()
    took |= {"peak_bytes": memory.peak_memory_in_bytes, "argument_bytes": memory.argument_size_in_bytes}
    (folder / "program.txt").write_text(program.as_text())
    (folder / "figures.json").write_text(json.dumps(took))


if __name__ == "__main__":
    folder, preset, generation, shape, slices, rows, length, quantization = sys.argv[1:]
    main(pathlib.Path(folder), preset, generation, shape, int(slices), int(rows), int(length), quantization)
