"""The metrics and checkpoints of a run, read from its checkpoint directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpujob.errors import CommandError
from tpujob.questions.trainer_program import Program, ask
from tpujob_contract import ExitCode

if TYPE_CHECKING:
    import pandas as pd


def read_metrics(directory: str) -> pd.DataFrame:
    """The metrics of a run by step: `train/loss`, `train/tokens_per_second` and the others that trackers get.

    Args:
        directory: The job's `spec.checkpointDir`, a path or an address of a bucket.

    Returns:
        A row for each recorded step, indexed by `step`; `time` is in UTC. A metric that a step lacks is NaN.

    Raises:
        CommandError: the directory has no metrics, or cannot be read from here; or pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise CommandError(
            "metrics: needs pandas, which is not installed; `pip install pandas`", exit_code=ExitCode.NOT_FOUND
        ) from error
    rows = ask(Program.RUN_REPORT, {"rows_of": directory})["rows"]
    frame = pd.DataFrame(rows).astype({"step": int}).set_index("step")
    frame["time"] = pd.to_datetime(frame["time"], unit="s", utc=True)
    return frame


def read_checkpoints(directory: str) -> list[dict[str, Any]]:
    """The committed checkpoints, newest first, as `tpujob checkpoint ls -o json` lists them.

    Raises:
        CommandError: the directory is not that of a run, or cannot be read from here.
    """
    found: list[dict[str, Any]] = ask(Program.CHECKPOINTS, directory)["checkpoints"]
    return found
