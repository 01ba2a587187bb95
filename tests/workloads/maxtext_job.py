"""A tiny MaxText of the package index, as a job: `make maxtext` installs it into .cache/maxtext first."""

import subprocess
from pathlib import Path
from typing import Any

PYTHON = Path(__file__).parents[2] / ".cache" / "maxtext" / "bin" / "python"
TINY = {
    "hardware": "cpu",
    "dataset_type": "synthetic",
    "base_emb_dim": 32,
    "base_mlp_dim": 64,
    "base_num_query_heads": 2,
    "base_num_kv_heads": 2,
    "head_dim": 16,
    "base_num_decoder_layers": 1,
    "vocab_size": 256,
    "max_target_length": 32,
    "per_device_batch_size": 1,
    "async_checkpointing": "false",
    "attention": "dot_product",
    "enable_goodput_recording": "false",
    "enable_tensorboard": "false",
}


def base_config() -> str:
    """The path of MaxText's own base.yml."""
    program = "import maxtext, pathlib; print(pathlib.Path(maxtext.__file__).parent / 'configs' / 'base.yml')"
    return subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=True).stdout.split()[-1]


def arguments(*, steps: int, period: int) -> list[str]:
    """Of MaxText's trainer, after its base.yml; see `spec`."""
    return [f"{key}={value}" for key, value in {"steps": steps, "checkpoint_period": period, **TINY}.items()]


def spec(*, steps: int, period: int) -> dict[str, Any]:
    """The spec of a job of two processes.

    Args:
        steps: Of the run.
        period: Steps from one checkpoint to the next.
    """
    command = [str(PYTHON), "-m", "maxtext.trainers.pre_train.train", base_config()]
    return {
        "accelerator": "cpu:2x1",
        "framework": "maxtext",
        "image": "maxtext:any",
        "command": [*command, *arguments(steps=steps, period=period)],
    }
