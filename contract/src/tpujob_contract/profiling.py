"""A profile of a training process: the request for it, and the location of its files.

`python -m tpujob_contract.profiling` requests one inside the container.
"""

import runpy
from typing import Any, Dict, List, Literal, Optional, TypedDict

PATH = "/profile"
SCHEME = "Bearer "
"""Before the job's secret in the header Authorization of a request."""
FOLDER = "profiles"
"""Folder of the checkpoint directory; a log directory for XProf and TensorBoard."""
MOST_STEPS = 100
RUN_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
"""Pattern of the name of a profile."""

State = Literal["idle", "waiting", "tracing", "writing", "done", "failed"]
Message = Dict[str, Any]
"""A `Profile`, an `error`, or a part of a file: its `name`, and `data` in base64."""


class Profile(TypedDict):
    """The state of a profile."""

    state: State
    run: Optional[str]
    """Its name."""
    steps: Optional[List[int]]
    """The first and the last traced step."""
    folder: Optional[str]
    """The folder where the files were saved; None: there is no checkpoint directory, or saving failed."""
    files: Dict[str, str]
    """By name in the folder: the path of a copy on the machine of the process."""
    message: Optional[str]
    """Why it failed."""


if __name__ == "__main__":
    runpy.run_module("tpujob_launcher.reports.profiling", run_name="__main__", alter_sys=True)
