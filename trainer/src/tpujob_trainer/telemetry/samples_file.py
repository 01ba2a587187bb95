"""`samples.jsonl` in the checkpoint directory: the texts that the model wrote, one line for each step.

The file is rewritten for each text, so that it is whole at any moment and on any storage: a bucket cannot append. It
keeps the newest thousand. A run that goes back to an earlier step replaces what came after.
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
        ValueError: one is damaged. To go on without it would drop it with the next text.
    """
    return [json_object(line) for line in content.splitlines()]


class SamplesFile:
    """Keeps texts; a tracker."""

    def __init__(self, directory: str) -> None:
        """Reads what is there.

        Raises:
            OSError: the directory cannot be read.
            ValueError: what is there is damaged, and stays as it is.
        """
        self._bucket = open_bucket(directory)
        stored = self._bucket.look(FILE)
        self._lines = parse(stored.data) if stored else []

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Nothing is kept of numbers."""

    def text(self, step: int, prompt: str, text: str) -> None:
        """Keeps a text as that of the newest step, beside those of other prompts."""
        before = [
            line for line in self._lines if line["step"] < step or (line["step"] == step and line["prompt"] != prompt)
        ]
        self._lines = [*before, {"step": step, "time": round(time.time(), 3), "prompt": prompt, "text": text}][-LIMIT:]
        whole = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self._lines)
        self._bucket.write(FILE, whole)

    def close(self) -> None:
        """Everything is written already."""
