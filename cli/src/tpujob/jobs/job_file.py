"""Reads a job from a file the way the API server would."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError

from tpujob.errors import CommandError
from tpujob.jobs.program import IMAGE
from tpujob.jobs.set_fields import with_fields
from tpujob_contract import ExitCode, kubernetes_names
from tpujob_resource.errors import InvalidJob
from tpujob_resource.rules.load import TpuTrainingJob, load_job

LONGEST_SHOWN = 60
"""The most characters of a document's kind in a message."""


def read_job(path: Path, settings: Sequence[str] = ()) -> TpuTrainingJob:
    """The job in a YAML or JSON file, with the fields that `--set` names.

    Raises:
        CommandError: no such file, not YAML, not one document, or wrong fields, with a line for each.
    """
    return read_manifest(path, settings)[1]


def local_job(document: Mapping[str, Any], source: Path, settings: Sequence[str] = ()) -> TpuTrainingJob:
    """The job that a document describes, for a run on this machine, in which a command needs no image.

    Args:
        document: The resource.
        source: The file name in messages.
        settings: As `--set` takes them.

    Raises:
        CommandError: a wrong field.
    """
    document = with_fields(document, settings)
    spec = document.get("spec")
    if isinstance(spec, Mapping) and "command" in spec and spec.get("image") is None:
        document = {**document, "spec": {**spec, "image": IMAGE}}
    return load_document(document, source, has_pods=False)


def read_manifest(path: Path, settings: Sequence[str] = ()) -> tuple[dict[str, Any], TpuTrainingJob]:
    """The document in a file, with the fields that `--set` names, and the job that it describes.

    Raises:
        CommandError: as `read_job`.
    """
    document = with_fields(read_document(path), settings)
    return document, load_document(document, path)


def read_document(path: Path) -> dict[str, Any]:
    """The one TpuTrainingJob in a file, not validated yet.

    YAML 1.2, as the API server reads it: `20e9` is a whole number, `on` is a word.

    Raises:
        CommandError: no such file, not YAML, or not one TpuTrainingJob.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise CommandError(
            f"{path}: {reason}; name a file with a TpuTrainingJob", exit_code=ExitCode.NOT_FOUND
        ) from error
    try:
        with warnings.catch_warnings(action="ignore", category=ReusedAnchorWarning):  # YAML allows it
            documents = [d for d in YAML(typ="safe", pure=True).load_all(text) if d is not None]
    except MarkedYAMLError as error:
        where = f"{path}:{error.problem_mark.line + 1}" if error.problem_mark else str(path)
        raise CommandError(f"{where}: not YAML: {error.problem}{_yaml_advice(str(error.problem))}") from error
    except YAMLError as error:
        raise CommandError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise CommandError(f"{path}: not YAML: blocks and lists are nested too deeply to be read") from error
    except ValueError as error:
        # From ruamel, for text that looks like a date but is not; it does not give the line.
        advice = "put values that are text in quotes"
        raise CommandError(f"{path}: not YAML: a date is wrong ({error}); {advice}") from error
    if not documents:
        raise CommandError(f"{path}: is empty; `tpujob new` writes a job to begin with")
    if len(documents) != 1:
        kinds = ", ".join(_kind(d) if isinstance(d, Mapping) else "something else" for d in documents)
        raise CommandError(
            f"{path}: has {len(documents)} documents ({kinds}), and one TpuTrainingJob is expected; "
            "put the others into a file of their own"
        )
    if not isinstance(documents[0], Mapping):
        raise CommandError(f"{path}: not a mapping; a TpuTrainingJob has apiVersion, kind, metadata and spec")
    if documents[0].get("kind") not in (None, kubernetes_names.KIND):
        raise CommandError(
            f"{path}: kind: {_kind(documents[0])} is not {kubernetes_names.KIND}; name the file of a job"
        )
    try:
        return {key: _as_json(value) for key, value in documents[0].items()}
    except UnicodeDecodeError as error:
        raise CommandError(
            f"{path}: not YAML: an escape such as \\ud83d is half of a character; write both halves, or the character"
        ) from error
    except RecursionError as error:
        raise CommandError(f"{path}: not YAML: an alias (*name) stands inside what it names; write it out") from error


def _kind(document: Mapping[str, Any]) -> str:
    return str(document.get("kind"))[:LONGEST_SHOWN]


def _as_json(value: Any) -> Any:
    """A value as kubectl converts it: JSON has one kind of number, in which 4e3 is 4000.

    Raises:
        UnicodeDecodeError: half of a surrogate pair is escaped. JSON escapes both, which YAML reads as two characters.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16")
    if isinstance(value, Mapping):
        return {_as_json(key): _as_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def load_document(document: Mapping[str, Any], path: Path, *, has_pods: bool = True) -> TpuTrainingJob:
    """The job that a document describes, validated; without pods it may name folders of this machine.

    Raises:
        CommandError: fields are wrong; a line for each, with the name of the file.
    """
    try:
        return load_job(document, has_pods=has_pods)
    except InvalidJob as error:
        raise CommandError(*(f"{path}: {problem}" for problem in error.problems)) from error


def _yaml_advice(problem: str) -> str:
    """Advice for the two most common kinds of mistakes; empty for others."""
    if "block end" in problem or "mapping values are not allowed" in problem or "could not find expected" in problem:
        return "; the line is indented more or less than its neighbours, or has no space after a colon"
    if "\\t" in problem or "cannot start any token" in problem:
        return "; indent with spaces, not tabs, and put values with special characters in quotes"
    return ""
