"""Reads a job from a file the way the API server would."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpujob.job.set_fields import with_fields
from tpujob.job.template import IMAGE
from tpujob.job.yaml_text import NotYaml, check_readings, read_yaml, text_of
from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode, kubernetes_names
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.rules.load import load_job
from tpujob_resource.topology.errors import InvalidJob

logger = logging.getLogger(__name__)

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

    Raises:
        CommandError: a wrong field.
    """
    document = _named(with_fields(document, settings))
    spec = document.get("spec")
    if isinstance(spec, Mapping) and "command" in spec and spec.get("image") is None:
        document = {**document, "spec": {**spec, "image": IMAGE}}
    return load_document(document, source, has_pods=False)


def read_manifest(path: Path, settings: Sequence[str] = ()) -> tuple[dict[str, Any], TpuTrainingJob]:
    """The document in a file, with the fields that `--set` names, and the job that it describes.

    Raises:
        CommandError: as `read_job`.
    """
    document = _named(with_fields(read_document(path), settings))
    return document, load_document(document, path)


def read_document(path: Path) -> dict[str, Any]:
    """The one TpuTrainingJob in a file, not validated yet.

    Raises:
        CommandError: no such file, not YAML, or not one TpuTrainingJob.
    """
    try:
        text = text_of(path)
    except (OSError, NotYaml) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CommandError(
            f"{path}: {reason}; name a file with a TpuTrainingJob", exit_code=ExitCode.NOT_FOUND
        ) from error
    try:
        check_readings(text)
        documents = [document for document in read_yaml(text) if document is not None]
    except NotYaml as error:
        where = f"{path}:{error.line}" if error.line else str(path)
        if "{{" in text:
            raise CommandError(f"{where}: {error}; a template ({{{{ … }}}}) is no job, render it first") from error
        raise CommandError(f"{where}: not YAML: {error}") from error
    if not documents:
        raise CommandError(f"{path}: is empty; `tpujob new` writes a job to begin with")
    if not all(isinstance(document, Mapping) for document in documents):
        raise CommandError(f"{path}: not a mapping; a TpuTrainingJob has apiVersion, kind, metadata and spec")
    jobs = [document for document in documents if document.get("kind") in (None, kubernetes_names.KIND)]
    if len(jobs) != 1:
        kinds = ", ".join(map(_kind, documents))
        if len(documents) == 1:
            raise CommandError(f"{path}: kind: {kinds} is not {kubernetes_names.KIND}; name the file of a job")
        raise CommandError(
            f"{path}: has {len(documents)} documents ({kinds}), and one {kubernetes_names.KIND} is expected among them"
        )
    if others := ", ".join(_kind(document) for document in documents if document is not jobs[0]):
        logger.warning(
            "note: %s: has %s beside the job, which tpujob leaves alone; `kubectl apply -f %s` makes all",
            path,
            others,
            path,
        )
    return dict(jobs[0])


def _kind(document: Mapping[str, Any]) -> str:
    return str(document.get("kind"))[:LONGEST_SHOWN]


SUFFIX_CHARACTERS, SUFFIX_LENGTH = "bcdfghjklmnpqrstvwxz2456789", 5
"""Of a made name, as the API server has them: kubernetes/apimachinery:pkg/util/rand/rand.go."""


def _named(document: dict[str, Any]) -> dict[str, Any]:
    """The document with a name that is made from `generateName`, if it has that alone."""
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("name") is not None:
        return document
    prefix = metadata.get("generateName")
    if not isinstance(prefix, str):
        return document
    made = prefix + "".join(secrets.choice(SUFFIX_CHARACTERS) for _ in range(SUFFIX_LENGTH))
    return {**document, "metadata": {**metadata, "name": made}}


def load_document(document: Mapping[str, Any], path: Path, *, has_pods: bool = True) -> TpuTrainingJob:
    """The job that a document describes, validated; without pods it may name folders of this machine.

    Raises:
        CommandError: fields are wrong; a line for each, with the name of the file.
    """
    try:
        return load_job(document, has_pods=has_pods)
    except InvalidJob as error:
        raise CommandError(*(f"{path}: {problem}" for problem in error.problems)) from error
