"""The configuration of a MaxText job's run: keys on its command line, in its environment, or MaxText's defaults.

Keys and defaults: AI-Hypercomputer/maxtext:src/maxtext/configs/base.yml; the sizes of a step: the same repository's
src/maxtext/configs/types.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tpujob_contract import maxtext_keys
from tpujob_resource.messages.error_messages import quoted
from tpujob_resource.models.job import TpuTrainingJob

_DEFAULTS = {
    "model_name": "default",
    "dataset_type": "tfds",
    "steps": "150001",
    "per_device_batch_size": "12",
    "max_target_length": "2048",
    "gradient_accumulation_steps": "1",
    "enable_checkpointing": "true",
    "checkpoint_period": "10000",
    "enable_autocheckpoint": "false",
}
_SHOWN = ("steps", "per_device_batch_size", "max_target_length", "checkpoint_period")
_KEEPS_POSITION = ("grain", "synthetic", "olmo_grain")
"""Values of dataset_type whose checkpoints include the data iterator, or that read no data."""


@dataclass(frozen=True)
class MaxTextRun:
    """The size of a run."""

    model: str
    steps: int
    rows: int
    """Rows of a step on all devices."""
    sequence_length: int
    checkpoint_period: int | None
    """Steps between checkpoints; None: nothing is saved."""
    defaults: tuple[str, ...]
    """Keys that the job does not set, so that MaxText's defaults apply."""

    @property
    def tokens(self) -> int:
        """Tokens of all steps."""
        return self.steps * self.rows * self.sequence_length


def run_of(job: TpuTrainingJob) -> MaxTextRun | None:
    """The size of a job's run; None: it is not a MaxText job, or a script, a file or an invalid number decides it."""
    if job.spec.framework != "maxtext" or not _says_all(job):
        return None
    devices = job.hosts * job.accelerator.devices_per_host
    try:
        each = float(_value(job, "per_device_batch_size")) * int(_value(job, "gradient_accumulation_steps"))
        period = int(_value(job, "checkpoint_period"))
        return MaxTextRun(
            model=_value(job, "model_name"),
            steps=int(_value(job, "steps")),
            rows=int(each * devices),
            sequence_length=int(_value(job, "max_target_length")),
            checkpoint_period=period if _is_true(job, "enable_checkpointing") else None,
            defaults=tuple(key for key in _SHOWN if _setting(job, key) is None),
        )
    except ValueError:
        return None


def restart_warnings(job: TpuTrainingJob) -> Iterator[str]:
    """Warnings about state that a restart of a MaxText job loses, although a key would keep it."""
    if job.spec.framework != "maxtext" or not job.accelerator.is_tpu or not _says_all(job):
        return
    data = _value(job, "dataset_type")
    if data not in _KEEPS_POSITION:
        how = f"dataset_type={data}" if _setting(job, "dataset_type") else f"dataset_type is {data} by default, which"
        yield (
            f"spec.command: {how} keeps no position: after each restart the run reads its first rows again; "
            "dataset_type=grain goes on where it was"
        )
    spot = job.spec.capacity is not None and bool(job.spec.capacity.spot)
    if spot and not _is_true(job, "enable_autocheckpoint"):
        yield (
            "spec.command: on spot capacity, MaxText saves nothing when it is asked to stop, and the steps since the "
            f"last checkpoint_period ({quoted(_value(job, 'checkpoint_period'))}) are lost; add "
            "enable_autocheckpoint=true"
        )


def _setting(job: TpuTrainingJob, key: str) -> str | None:
    return maxtext_keys.setting(key, {each.name: each.value for each in job.spec.env or ()}, _words(job))


def _value(job: TpuTrainingJob, key: str) -> str:
    return _setting(job, key) or _DEFAULTS[key]


def _is_true(job: TpuTrainingJob, key: str) -> bool:
    return _value(job, key).lower() in ("true", "1", "yes", "t", "y")


def _says_all(job: TpuTrainingJob) -> bool:
    """Whether all keys are words of the command: no shell line, and no configuration file except MaxText's own."""
    words = _words(job)
    has_file = any(word.endswith((".yml", ".yaml")) and "=" not in word for word in words if "base.yml" not in word)
    return not has_file and any("maxtext" in word.lower() and " " not in word and "=" not in word for word in words)


def _words(job: TpuTrainingJob) -> list[str]:
    return [*(job.spec.command or ()), *(job.spec.args or ())]
