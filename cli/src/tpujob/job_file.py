"""Reads a job from a file the way the API server would."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tpujob.errors import CommandError
from tpujob_contract import ExitCode
from tpujob_operator.api.load import TpuTrainingJob, load_job
from tpujob_operator.errors import InvalidJob


def read_job(path: Path) -> TpuTrainingJob:
    """The job in a YAML or JSON file.

    YAML 1.2, as the API server reads it: `20e9` is a number, `on` is a word.

    Raises:
        CommandError: no such file, not YAML, more or less than one document, or a wrong field; one line each.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise CommandError(
            f"{path}: {reason}; name a file with a TpuTrainingJob", exit_code=ExitCode.NOT_FOUND
        ) from error
    try:
        documents = [d for d in YAML(typ="safe", pure=True).load_all(text) if d is not None]
    except MarkedYAMLError as error:
        where = f"{path}:{error.problem_mark.line + 1}" if error.problem_mark else str(path)
        raise CommandError(f"{where}: not YAML: {error.problem}") from error
    except YAMLError as error:
        raise CommandError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if len(documents) != 1:
        raise CommandError(f"{path}: {len(documents)} documents; one TpuTrainingJob is expected")
    if not isinstance(documents[0], Mapping):
        raise CommandError(f"{path}: not a mapping; a TpuTrainingJob has apiVersion, kind, metadata and spec")
    try:
        return load_job(documents[0])
    except InvalidJob as error:
        raise CommandError(*(f"{path}: {problem}" for problem in error.problems)) from error
