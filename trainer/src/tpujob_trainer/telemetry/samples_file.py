"""`samples.jsonl` in the checkpoint directory: the texts that the model wrote, a line for each step and prompt.

The file is rewritten for each text, so that it is complete at any time and on any storage: a bucket cannot append. It
has the newest thousand texts. A run that goes back to an earlier step replaces later ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.parsing.json_object import json_object
from tpujob_trainer.storage import open_bucket

FILE = "samples.jsonl"
LIMIT = 1000


def parse(content: bytes) -> list[dict[str, Any]]:
    """The lines of a file of samples, in their order.

    Raises:
        ValueError: one is damaged. If it were skipped, the next text would delete it.
    """
    return [json_object(line) for line in content.splitlines()]


class SamplesFile:
    """Records texts; a tracker."""

    def __init__(self, directory: str) -> None:
        """Reads the existing file.

        Raises:
            OSError: the directory cannot be read.
            ValueError: the file is damaged; it stays as it is.
        """
        self._bucket = open_bucket(directory)
        stored = self._bucket.look(FILE)
        self._lines = parse(stored.data) if stored else []

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Does nothing: numbers are not recorded."""

    def text(self, step: int, prompt: str, text: str) -> None:
        """Adds a text to those of other prompts of the same step, and drops later steps."""
        before = [
            line for line in self._lines if line["step"] < step or (line["step"] == step and line["prompt"] != prompt)
        ]
        self._lines = [*before, {"step": step, "time": round(time.time(), 3), "prompt": prompt, "text": text}][-LIMIT:]
        whole = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self._lines)
        self._bucket.write(FILE, whole)

    def close(self) -> None:
        """Does nothing: everything is written already."""
