"""A profile of a training process: the request, and where its files are.

`python -m tpujob_contract.profiling` asks for one from within the container.
"""

from __future__ import annotations

import runpy
from typing import Any, Dict, List, Literal, Optional, TypedDict

PATH = "/profile"
FOLDER = "profiles"
"""Of the checkpoint directory; a log directory for XProf and TensorBoard."""
MOST_STEPS = 100
RUN_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
"""What a profile may be called."""

State = Literal["idle", "waiting", "tracing", "writing", "done", "failed"]
Message = Dict[str, Any]
"""A `Profile`, an `error`, or a part of a file: its `name` and `data` in base64."""


class Profile(TypedDict):
    """How far a profile is."""

    state: State
    run: Optional[str]
    """Its name."""
    steps: Optional[List[int]]
    """First and last one that is traced."""
    folder: Optional[str]
    """Where the files were saved; None without a checkpoint directory, and where that failed."""
    files: Dict[str, str]
    """Name below the folder, and the path of a copy on the machine of the process."""
    message: Optional[str]
    """Why it failed."""


if __name__ == "__main__":
    runpy.run_module("tpujob_launcher.reports.profiling", run_name="__main__", alter_sys=True)
