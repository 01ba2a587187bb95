"""Activations by transformers, as two people write it; run by `extract.py` in a Python that has torch.

    python extract_torch.py FOLDER BATCH LENGTH LAYERS documented|careful

FOLDER holds the model and rows.json. A line on stdin names a folder for the output; the answer is the seconds, and the
seconds of processor time, that all rows took.

documented: rows filled up to LENGTH, hooks, all layers computed, one .npz for each batch, as the documentation has it.
careful: rows sorted by length within a window of batches and filled up to the longest of theirs, layers behind the last
kept one left out, safetensors written by a thread, `torch.compile` with dynamic lengths if --compile.
"""

import argparse
import json
import queue
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

WINDOW_BATCHES = 16
"""The number of batches whose rows are sorted together."""


class Extractor:
    """A loaded model with hooks on the kept layers."""

    def __init__(self, folder: str, layers: Sequence[int], *, is_careful: bool, is_compiled: bool) -> None:
        """Loads the model and registers the hooks."""
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().model
        self.kept: dict[int, Any] = {}
        if is_careful:
            model.layers = model.layers[: max(layers) + 1]
            model.config.num_hidden_layers = len(model.layers)
        for number in layers:
            model.layers[number].register_forward_hook(self._hook(number))
        self.model = torch.compile(model, dynamic=True) if is_compiled else model
        self.layers = layers

    def _hook(self, number: int) -> Any:
        def keep(module: Any, inputs: Any, output: Any) -> None:
            self.kept[number] = output[0] if isinstance(output, tuple) else output

        return keep

    def values(self, rows: Sequence[Sequence[int]], length: int) -> dict[str, np.ndarray]:
        """The values of each layer, float16 [tokens, width], with the rows concatenated."""
        tokens = torch.zeros((len(rows), length), dtype=torch.long)
        mask = torch.zeros_like(tokens)
        for place, row in enumerate(rows):
            tokens[place, : len(row)] = torch.tensor(row)
            mask[place, : len(row)] = 1
        with torch.inference_mode():
            self.model(tokens, attention_mask=mask, use_cache=False)
        found = {str(number): self.kept[number].half().numpy() for number in self.layers}
        return {name: np.concatenate([v[i, : len(row)] for i, row in enumerate(rows)]) for name, v in found.items()}


def documented(extractor: Extractor, rows: list[list[int]], batch: int, length: int, out: Path) -> None:
    """Writes the values of all rows, in their order."""
    for first in range(0, len(rows), batch):
        np.savez(out / f"{first}.npz", **extractor.values(rows[first : first + batch], length))  # type: ignore[arg-type]


def careful(extractor: Extractor, rows: list[list[int]], batch: int, out: Path) -> None:
    """Writes the values of all rows, grouped by length; a thread writes each file during the next batches."""
    pending: queue.Queue[Any] = queue.Queue(2)

    def write() -> None:
        while (item := pending.get()) is not None:
            number, chosen, values = item
            lengths = np.array([len(rows[row]) for row in chosen])
            tokens = np.concatenate([np.array(rows[row], np.int32) for row in chosen])
            columns = {"row": np.array(chosen), "length": lengths, "tokens": tokens, **values}
            save_file(columns, out / f"{number}.safetensors")

    writer = threading.Thread(target=write)
    writer.start()
    for number, chosen in enumerate(by_length(rows, batch)):
        longest = max(len(rows[row]) for row in chosen)
        pending.put((number, chosen, extractor.values([rows[row] for row in chosen], longest)))
    pending.put(None)
    writer.join()


def by_length(rows: Sequence[Sequence[int]], batch: int) -> Iterator[list[int]]:
    """Batches of row numbers with similar lengths."""
    window = WINDOW_BATCHES * batch
    for first in range(0, len(rows), window):
        ordered = sorted(range(first, min(first + window, len(rows))), key=lambda row: len(rows[row]))
        for start in range(0, len(ordered), batch):
            yield ordered[start : start + batch]


def main() -> None:
    """Handles requests until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("batch", type=int)
    parser.add_argument("length", type=int)
    parser.add_argument("layers")
    parser.add_argument("way", choices=("documented", "careful"))
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    is_careful = options.way == "careful"
    layers = [int(layer) for layer in options.layers.split(",")]
    extractor = Extractor(options.folder, layers, is_careful=is_careful, is_compiled=options.compile)
    rows = json.loads(Path(options.folder, "rows.json").read_text())
    extractor.values(rows[: options.batch], options.length)  # compiles and fills caches
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        began, cpu_began = time.monotonic(), time.process_time()
        if is_careful:
            careful(extractor, rows, options.batch, Path(line.strip()))
        else:
            documented(extractor, rows, options.batch, options.length, Path(line.strip()))
        sys.stdout.write(f"{time.monotonic() - began} {time.process_time() - cpu_began}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
