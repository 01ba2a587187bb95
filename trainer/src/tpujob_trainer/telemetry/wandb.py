"""The Weights & Biases tracker: one run for all attempts, by an ID in the checkpoint directory.

The environment has login and server (WANDB_API_KEY, WANDB_MODE, WANDB_BASE_URL): a job has no key. An offline run is a
folder `wandb/offline-run-…` in the checkpoint directory for each attempt, for `wandb sync`. In a bucket the folder
appears when the attempt ends.
"""

import html
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpujob_trainer.storage import is_local, open_bucket
from tpujob_trainer.values.json_object import damaged, kept_object

FILE = "wandb.json"
INIT_SECONDS = 120


class WandB:
    """Logs to a run; a tracker. The constructor imports wandb."""

    def __init__(
        self,
        *,
        project: str,
        entity: str | None,
        name: str | None,
        directory: str | None,
        config: Mapping[str, Any],
    ) -> None:
        """Starts or resumes the run; blocks until the service has answered.

        Args:
            project: Of the run.
            entity: User or team; None: the default of the login.
            name: Of the run; None: the service chooses it.
            directory: The checkpoint directory, which has the run's ID; None: a new run each time.
            config: Shown with the run.
        """
        local = Path(tempfile.mkdtemp(prefix="wandb-"))
        for variable in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
            os.environ.setdefault(variable, str(local))  # the home directory may be read-only
        import wandb

        where = Path(directory) if directory and is_local(directory) else local
        self._bucket = open_bucket(directory) if directory and where == local else None
        self._wandb = wandb
        self._run = wandb.init(
            project=project,
            entity=entity,
            name=name,
            id=run_id(directory) if directory else None,
            resume="allow" if directory and os.environ.get("WANDB_MODE") != "offline" else None,
            config=dict(config),
            dir=str(where),
            settings=wandb.Settings(init_timeout=INIT_SECONDS, console="off", silent=True),
        )
        # Our own step: a run that goes back to a checkpoint logs steps again, which W&B's own counter refuses.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Adds each number to the curve of its name, over our step."""
        self._run.log({"step": step, **values})

    def text(self, step: int, prompt: str, text: str) -> None:
        """Adds a text, unchanged."""
        self._run.log({"step": step, "sample": self._wandb.Html(f"<pre>{html.escape(text)}</pre>")})

    def close(self) -> None:
        """Waits until everything is sent or written."""
        folder = Path(self._run.dir).parent
        is_offline = self._run.offline
        self._run.finish()
        # `finish` does not wait until the wandb service has closed the run's file; `teardown` does.
        self._wandb.teardown()
        if is_offline and self._bucket is not None:
            # The run's own file is copied last: a folder that has it is complete.
            for file in sorted(filter(Path.is_file, folder.rglob("*")), key=lambda file: file.suffix == ".wandb"):
                self._bucket.write(f"wandb/{folder.name}/{file.relative_to(folder)}", file.read_bytes())


def run_id(directory: str) -> str:
    """The ID of the run of this checkpoint directory, chosen by the first call."""
    bucket = open_bucket(directory)
    bucket.create(FILE, json.dumps({"id": secrets.token_hex(4)}) + "\n")
    where, remedy = f"spec.checkpointDir: {directory}/{FILE}", "delete it, and another run of W&B begins"
    found = kept_object(bucket.read(FILE), where, remedy).get("id")
    if not isinstance(found, str):
        raise damaged(where, "no id", remedy)
    return found
