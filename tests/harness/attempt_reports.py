"""The reports of attempts in a checkpoint directory, as tests read them."""

import json
from pathlib import Path
from typing import Any


def latest(directory: str | Path) -> dict[str, Any] | None:
    """The report of the newest attempt; None: there is none."""
    files = sorted(Path(directory, "attempts").glob("*.json"))
    found: dict[str, Any] | None = json.loads(files[-1].read_text()) if files else None
    return found
