"""What a loop of your own may set."""

import pytest

from tpujob_sdk import Options
from tpujob_trainer.config.schema import CheckpointConfig, LocalCopiesConfig
from tpujob_trainer.values.errors import ConfigurationError


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        (CheckpointConfig(every_steps=5), r"Options\.checkpoint\.every_steps: 5 has no effect .* checkpoints\.save"),
        (CheckpointConfig(every_seconds=5), r"Options\.checkpoint\.every_seconds: 5 has no effect"),
        (
            CheckpointConfig(local=LocalCopiesConfig(dir="/x", every_steps=5)),
            r"checkpoint\.local: .* leave it out",
        ),
    ],
    ids=["steps", "seconds", "local"],
)
def test_what_only_the_trainers_own_loop_does_is_refused(checkpoint: CheckpointConfig, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Options(checkpoint=checkpoint).require_own_decisions()


def test_how_to_keep_checkpoints_is_the_users_choice() -> None:
    Options(checkpoint=CheckpointConfig(keep=7, timeout_seconds=20, fail_after_seconds=60)).require_own_decisions()
