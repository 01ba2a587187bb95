"""One run in several attempts, as tests tell it, and what they wait for in its reports."""

import json

from tests.harness import processes

PROCESSES, DEVICES = 2, 4
ENDLESS = 10_000_000
"""Steps: more than there is time for, on any machine."""


class Scenario:
    """One run in several attempts."""

    def __init__(self, folder, config):
        self.folder, self.config = folder, config
        self.checkpoints = folder / "checkpoints"
        self.attempts: list[processes.Run] = []

    def attempt(self, count=PROCESSES, devices=DEVICES, checkpoint_dir=None):
        run = processes.start(
            self.folder / f"attempt-{len(self.attempts)}",
            processes=count,
            devices=devices,
            config=self.config,
            checkpoint_dir=checkpoint_dir or self.checkpoints,
            attempt=len(self.attempts),
        )
        self.attempts.append(run)
        return run

    def ending(self, attempt):
        """What the attempt left beside the checkpoint."""
        files = sorted((self.checkpoints / "attempts").iterdir())
        return json.loads(files[attempt].read_text())


def committed(least):
    return lambda report: (report["committed_step"] or 0) >= least


def trained(least):
    return lambda report: report["step"] >= least and report["phase"] == "training"
