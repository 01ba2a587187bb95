"""The options of a run: saves and limits."""

import dataclasses
import json
from dataclasses import dataclass, field

from tpujob_trainer.config.schema import CheckpointConfig, PreflightConfig
from tpujob_trainer.distributed.exit.watchdog import WatchdogConfig
from tpujob_trainer.values.errors import ConfigurationError

_OF_THE_TRAINER = {
    "every_steps": "call checkpoints.save at the steps you choose",
    "every_seconds": "call checkpoints.save at the steps you choose",
    "local": "save to spec.checkpointDir more often",
}
"""Fields of `checkpoint` that only the trainer's own loop supports, and what to do instead."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `run`, all with defaults; the fields have the same meaning as in the `trainer` block."""

    checkpoint_dir: str | None = None
    """Used if the job has no checkpoint directory, as on a laptop. Default: nothing is saved."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """How many checkpoints are kept, and how long a save may take. The loop itself decides when to save: `every_steps`,
    `every_seconds` and `local` are refused."""
    watchdog: WatchdogConfig = field(default_factory=WatchdogConfig)
    """When a run that makes no progress is ended."""
    preflight: PreflightConfig = field(default_factory=PreflightConfig)
    """What is checked of the hosts before the first step."""
    heartbeat_seconds: int = 30
    """Silence after which a process counts as lost, and all others end, naming it."""
    compile_cache: bool = True
    """Keep compiled programs in the checkpoint directory."""

    def require_own_decisions(self) -> None:
        """Checks that no option is set that only the trainer's own loop supports.

        Raises:
            ConfigurationError: a field of `checkpoint` sets when to save or to copy.
        """
        default = CheckpointConfig()
        for name, instead in _OF_THE_TRAINER.items():
            value = getattr(self.checkpoint, name)
            if value != getattr(default, name):
                raise ConfigurationError(
                    f"Options.checkpoint.{name}: {value} has no effect in a loop of your own; leave it out, "
                    f"and {instead}"
                )

    def as_json(self) -> str:
        """The options as JSON, which is stored with every checkpoint."""
        return json.dumps(dataclasses.asdict(self))
