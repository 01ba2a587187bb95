"""The jobs that commands write: that of `tpujob new`, and that of a program without a job file."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode, kubernetes_names, storage_address
from tpujob_contract.file_names import FILE_ENDINGS
from tpujob_resource.topology.errors import InvalidField
from tpujob_resource.topology.parse import parse_accelerator

VOCABULARY_OF_BYTES = ("tiny", "small")
"""Presets whose vocabulary follows from the tokenizer; the others need their own tokenizer."""
SMALLEST = "tiny"
"""The preset whose default batch suits a laptop."""
_ENDINGS = tuple(ending for endings in FILE_ENDINGS.values() for ending in endings)
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def source_of(name: str) -> dict[str, str]:
    """The field of a job's `data` for a path, a pattern, a URL, or a data set's name on the hub."""
    # A mistyped path must not count as a name on the hub: its first folder exists, or it has a file's ending.
    path = Path(name)
    is_here = path.exists() or (len(path.parts) > 1 and Path(path.parts[0]).is_dir())
    is_path = (
        not storage_address.is_path(name)
        or any(character in name for character in "*?[")
        or is_here
        or name.lower().endswith(_ENDINGS)
    )
    return {"dataset": name} if not is_path and _HUB_NAME.fullmatch(name) else {"path": name}


def job_text(*, name: str, accelerator: str, data: str, preset: str) -> str:
    """A commented TpuTrainingJob as YAML."""
    ((kind, place),) = source_of(data).items()
    is_here = accelerator.startswith("cpu:")
    tokenizer = "bytes" if preset in VOCABULARY_OF_BYTES else "gs://my-bucket/tokenizer.json"
    verb = "run" if is_here else "submit"
    comment = "# " if is_here else ""
    size = _laptop_size(accelerator, preset) if is_here and preset != SMALLEST else ""
    return f"""\
# tpujob {verb} FILE   starts it; tpujob check FILE looks at it first; kubectl explain ttj.spec explains every field.
apiVersion: tpujob.dev/v1beta1
kind: TpuTrainingJob
metadata:
  name: {name}
spec:
  # One slice. cpu:HOSTSxDEVICES runs anywhere; v5e-16 is 16 chips on 4 hosts. slices: 2 would be two of them.
  accelerator: {accelerator}
  # Where checkpoints go. On a cluster, a bucket that the pods' service account may write to; here, .tpujob/ by default.
  {comment}checkpointDir: gs://my-bucket/{name}
  trainer:
    # A preset; fields beside it (layers, embedDim, heads, ...) replace its own.
    model: {{preset: {preset}}}
    data:
      {kind}: "{place}"
      # bytes, or the tokenizer.json of a model, its folder, or a gs:// address of either.
      tokenizer: {tokenizer}
{size}    # How long to train, in steps or in tokens (tokens: 20e9).
    steps: {200 if is_here else 10000}
    checkpoint: {{everySteps: {50 if is_here else 500}}}
"""


def _laptop_size(accelerator: str, preset: str) -> str:
    """YAML lines for a batch that CPUs process in seconds, with one row for each device."""
    try:
        devices = parse_accelerator(accelerator).chips
    except InvalidField:
        return ""  # The job is validated when it is written, and the error names the field.
    return f"""\
    # A batch for a laptop. Without these two lines it is that of {preset} on TPUs, which takes hours here.
    batchSize: {devices}
    sequenceLength: 256
"""


ACCELERATOR = "cpu:1x1"
"""The default of --accelerator: one process."""
IMAGE = "this-machine"
"""A placeholder for the image, which only pods need."""


def is_program(file: Path) -> bool:
    """Whether a file is a Python program rather than a job."""
    return file.suffix == ".py"


def job_of(program: Path, arguments: Sequence[str], accelerator: str | None) -> dict[str, Any]:
    """The manifest of a job that runs a program with its arguments.

    Raises:
        CommandError: there is no such program.
    """
    if not program.is_file():
        raise CommandError(f"{program}: no such file; name a program or a job", exit_code=ExitCode.NOT_FOUND)
    return {
        "apiVersion": kubernetes_names.API_VERSION,
        "kind": kubernetes_names.KIND,
        "metadata": {"name": job_name(program)},
        "spec": {
            "accelerator": accelerator or ACCELERATOR,
            "image": IMAGE,
            "command": ["python3", str(program), *arguments],
        },
    }


def job_name(program: Path) -> str:
    """The name of the job that runs a program: that of its file, as Kubernetes allows it."""
    name = re.sub(r"[^a-z0-9]+", "-", program.stem.lower()).strip("-")[:40] or "program"
    return name if name[0].isalpha() else f"program-{name}"


def command_line(
    file: Path,
    arguments: Sequence[str],
    accelerator: str | None,
    settings: Sequence[str] = (),
    machines: Sequence[str] = (),
) -> str:
    """The command line that runs a file again."""
    options = ["--accelerator", accelerator] if accelerator else []
    options += [*(part for setting in settings for part in ("--set", setting)), *machines]
    return shlex.join(["tpujob", "run", str(file), *options, *(["--", *arguments] if arguments else [])])
