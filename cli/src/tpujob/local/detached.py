"""`tpujob run --detach`: a run in the background, which a lost connection does not end."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tpujob.output.errors import CommandError

LOG = "run.log"
"""The file in the folder of the job with the output of `tpujob run`."""
START_SECONDS = 60.0
"""Time for the checks of the run and the start of its processes."""
POLL_SECONDS = 0.1


def start(arguments: Sequence[str], root: Path, is_started: Callable[[int], bool]) -> int:
    """Starts `tpujob run` in its own session; returns its pid when its processes have started, or after 60 s.

    Args:
        arguments: Of `tpujob`, without --detach.
        root: The folder of the job.
        is_started: Whether the run of this pid has started its processes.

    Raises:
        CommandError: it was refused or failed before that; with its output and exit code.
    """
    root.mkdir(parents=True, exist_ok=True)
    with (root / LOG).open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "tpujob", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        code = child.poll()
        if code:
            raise CommandError(*(root / LOG).read_text(errors="replace").splitlines(), exit_code=code)
        if code == 0 or is_started(child.pid):
            return child.pid
        time.sleep(POLL_SECONDS)
    return child.pid
