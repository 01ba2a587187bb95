"""The configuration of a MaxText job's run: keys on its command line, in its environment, or MaxText's defaults.

Keys and defaults: AI-Hypercomputer/maxtext:src/maxtext/configs/base.yml; the sizes of a step: the same repository's
src/maxtext/configs/types.py.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import PurePosixPath

from tpujob_contract import maxtext_keys
from tpujob_contract.spelling import nearest_name
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


def argument_warnings(job: TpuTrainingJob) -> Iterator[str]:
    """Warnings about arguments that MaxText refuses or ignores, or that do not go with the rest of the job."""
    if job.spec.framework != "maxtext" or not _is_direct(job):
        return
    yield from _unknown_names(job)
    if config_file(job) is not None:
        return
    yield from _meshes(job)
    yield from _saving(job)
    yield from _unreachable_files(job)
    if _setting(job, "tokenizer_path") is None and _value(job, "dataset_type") != "synthetic":
        yield (
            "spec.command: without tokenizer_path, MaxText takes that of model_name, mostly from the hub, also for "
            "tokenized data; name a file, or one that MaxText brings, as in "
            "tokenizer_path=tokenizer_llama3.tiktoken tokenizer_type=tiktoken"
        )


def _unknown_names(job: TpuTrainingJob) -> Iterator[str]:
    names = _names()
    variables = {maxtext_keys.variable(key): key for key in names["keys"]}
    for word in _words(job):
        key, is_setting, _ = word.partition("=")
        if not is_setting or not key.lstrip("-").isidentifier():
            continue
        if key.startswith("-"):
            yield f"spec.command: {quoted(word)}: MaxText reads KEY=VALUE; leave out the dashes"
        elif key not in names["keys"]:
            yield f"spec.command: {quoted(key)} is no key of MaxText, which refuses it{_meant(key, names['keys'])}"
    for each in job.spec.env or ():
        if each.name.startswith("M_") and each.name not in variables:
            yield f"spec.env: {each.name} sets no key of MaxText{_meant(each.name, variables)}"
    model = _value(job, "model_name")
    if model not in names["models"]:
        yield f"spec.command: model_name={model} is no model of MaxText{_meant(model, names['models'])}"


def _meant(given: str, known: Sequence[str] | Mapping[str, str]) -> str:
    near = nearest_name(given, known)
    return "" if near is None else f"; did you mean {near}?"


def _meshes(job: TpuTrainingJob) -> Iterator[str]:
    """One axis of each level may be -1, which is what is left; by default fsdp of ici, and data of dcn."""
    devices = job.accelerator.hosts_per_slice * job.accelerator.devices_per_host
    levels = (("ici", "fsdp", devices, "devices of a slice"), ("dcn", "data", job.slices, "slices"))
    for level, rest, parts, what in levels:
        keys = [key for key in _names()["keys"] if key.startswith(f"{level}_") and key.endswith("_parallelism")]
        given = {key: value for key in keys if (value := _setting(job, key)) is not None}
        try:
            sizes = [int(size) for size in {f"{level}_{rest}_parallelism": "-1", **given}.values()]
        except ValueError:
            continue  # a list, for instance
        product = math.prod(size for size in sizes if size > 0)
        if given and (parts % product if -1 in sizes else product != parts):
            shown = " ".join(f"{key}={value}" for key, value in given.items())
            yield f"spec.command: {shown}: together {product}, and there are {parts} {what}; one may be -1, the rest"


def _saving(job: TpuTrainingJob) -> Iterator[str]:
    run, directory = run_of(job), job.spec.checkpoint_dir
    given = _setting(job, "base_output_directory")
    if given is not None and directory is not None and given.rstrip("/") != directory.rstrip("/"):
        yield f"spec.command: base_output_directory={given}, so nothing is written to spec.checkpointDir; leave out one"
    if run is None or directory is None:
        return
    if run.checkpoint_period is None:
        yield "spec.command: enable_checkpointing is false, so a restart begins at step 0; leave it out"
    elif run.checkpoint_period >= run.steps:
        period = f"checkpoint_period={run.checkpoint_period}"
        yield f"spec.command: {period} saves nothing before the end of {run.steps:,} steps; give a smaller one"


_FILES = (
    *("grain_train_files", "grain_eval_files", "hf_train_files", "hf_eval_files", "dataset_path"),
    *("load_full_state_path", "load_parameters_path", "base_output_directory"),
)
"""Keys whose values are files or folders outside of the image."""


def _unreachable_files(job: TpuTrainingJob) -> Iterator[str]:
    mounts = [volume.mount_path for volume in job.spec.volumes or ()]
    for key in _FILES if job.accelerator.is_tpu else ():
        for path in (_setting(job, key) or "").split(";"):
            if path.startswith("/") and not any(PurePosixPath(path).is_relative_to(mount) for mount in mounts):
                yield f"spec.command: {key}: {quoted(path)} is on no volume of the job (spec.volumes)"


@cache
def _names() -> Mapping[str, Sequence[str]]:
    """The keys and models of MaxText 0.2.5 (configs/base.yml and configs/types.py) and of earlier releases."""
    file = resources.files("tpujob_resource.rules").joinpath("maxtext_names.json")
    names: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))
    return names


def config_file(job: TpuTrainingJob) -> str | None:
    """The configuration file that a command names; None: it is MaxText's own."""
    files = (word for word in _words(job) if word.endswith((".yml", ".yaml")) and "=" not in word)
    return next((word for word in files if "base.yml" not in word), None)


def with_config_file(job: TpuTrainingJob, values: Mapping[str, object]) -> TpuTrainingJob:
    """The job with the values of its configuration file as the last words of its command, the first of which count."""
    words = [word for word in _words(job) if word != config_file(job)]
    words += [f"{key}={value}" for key, value in values.items() if key != "base_config"]
    return job.model_copy(update={"spec": job.spec.model_copy(update={"command": words, "args": None})})


def _setting(job: TpuTrainingJob, key: str) -> str | None:
    return maxtext_keys.setting(key, {each.name: each.value for each in job.spec.env or ()}, _words(job))


def _value(job: TpuTrainingJob, key: str) -> str:
    return _setting(job, key) or _DEFAULTS[key]


def _is_true(job: TpuTrainingJob, key: str) -> bool:
    return _value(job, key).lower() in ("true", "1", "yes", "t", "y")


def _says_all(job: TpuTrainingJob) -> bool:
    """Whether all keys are words of the command: no shell line, and no configuration file except MaxText's own."""
    return config_file(job) is None and _is_direct(job)


def _is_direct(job: TpuTrainingJob) -> bool:
    """Whether the command starts MaxText itself, not by a line of a shell."""
    return any("maxtext" in word.lower() and " " not in word and "=" not in word for word in _words(job))


def _words(job: TpuTrainingJob) -> list[str]:
    return [*(job.spec.command or ()), *(job.spec.args or ())]
