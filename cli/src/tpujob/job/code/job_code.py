"""The code of a job: packed and stored for its pods, and unpacked and used on this machine."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpujob.job.code.packing import Packed, pack
from tpujob.job.code.upload import access_token, store
from tpujob.output.errors import CommandError
from tpujob_contract.environment import REQUIREMENTS, WHEELS
from tpujob_contract.requirement_pins import read_pins
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.commit import install_commit
from tpujob_launcher.code.install import install
from tpujob_launcher.code.python_path import code_variables
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.spec import Code

type Object = dict[str, Any]


def attach(
    manifest: Mapping[str, Any],
    folder: Path,
    place: str | None,
    *,
    revision: str | None = None,
    is_rehearsal: bool = False,
) -> tuple[Object, Packed, bool]:
    """Packs and stores the code of a folder, and adds it to a manifest; a rehearsal stores nothing.

    Args:
        manifest: A TpuTrainingJob as it was written.
        folder: The folder of the code.
        place: Where archives go: gs://BUCKET/PATH or a path; None: the folder `code` of the checkpoint directory.
        revision: The commit whose files are taken; None: the folder as it is now.
        is_rehearsal: Whether nothing is to be stored.

    Returns:
        The manifest, the archive, and whether it was stored now: not if it was there already, or in a rehearsal.

    Raises:
        CommandError: the job has code already, its packages have no pins, there is no place for it, or it cannot be
            packed or stored.
    """
    refuse_two(manifest["spec"].get("code") is not None)
    if revision is None:
        refuse_unpinned((manifest["spec"].get("packages") or {}).get("requirements"), folder)
    packed = pack(folder, revision)
    address = f"{(place or _default_place(manifest)).rstrip('/')}/{packed.name}"
    is_new = not is_rehearsal and store(packed.data, address)
    return with_code(manifest, packed, address), packed, is_new


def with_code(manifest: Mapping[str, Any], packed: Packed, address: str) -> Object:
    """The manifest with `spec.code`."""
    commit = packed.files.commit_with_changes
    code = {"archive": address, "sha256": packed.sha256} | ({"commit": commit} if commit else {})
    return {**manifest, "spec": {**manifest["spec"], "code": code}}


def refuse_two(has_code: bool) -> None:
    """Raises CommandError if the job has `spec.code` already."""
    if has_code:
        raise CommandError("--code: the job has spec.code already; leave out one of the two")


def refuse_unpinned(requirements: str | None, folder: Path) -> None:
    """Refuses a requirements file in `folder` that launchers would refuse; one that is not there may be in an image.

    Raises:
        CommandError: it has something else than pins with hashes.
    """
    file = folder / (requirements or "")
    if not file.is_file():
        return
    try:
        read_pins(file.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise CommandError(f"spec.packages.requirements: {file}: {error}") from error


def _default_place(manifest: Mapping[str, Any]) -> str:
    directory = manifest["spec"].get("checkpointDir")
    if not directory:
        raise CommandError(
            "--code-to: is needed, as the job has no checkpointDir; name a folder that the pods can read"
        )
    return f"{directory.rstrip('/')}/code"


def with_local_code(job: TpuTrainingJob, source: Path, folder: Path, revision: str | None = None) -> TpuTrainingJob:
    """The job with the code of the folder `source`, or of a commit of it; writes its archive into `folder`.

    Raises:
        CommandError: the job has code already, or the folder cannot be packed.
    """
    refuse_two(job.spec.code is not None)
    packed = pack(source, revision)
    archive = folder / packed.name
    store(packed.data, str(archive))
    code = Code(archive=str(archive), sha256=packed.sha256, commit=packed.files.commit_with_changes)
    # Not validated again: the rule that the archive is on a volume is for pods.
    return job.model_copy(update={"spec": job.spec.model_copy(update={"code": code})})


@contextmanager
def importable(source: Path | None) -> Iterator[Mapping[str, str] | None]:
    """The environment of programs that import the code that `submit --code` would pack, until the block ends.

    Args:
        source: The folder; None: yields None, which stands for the environment of the command line.

    Raises:
        CommandError: the folder cannot be packed.
    """
    if source is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        packed = pack(source, None)
        archive = Path(folder) / packed.name
        store(packed.data, str(archive))
        place = unpack_code(Code(archive=str(archive), sha256=packed.sha256), Path(folder) / "code")
        paths = [str(place), os.environ.get("PYTHONPATH", "")]
        yield {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def unpack_code(code: Code | None, folder: Path) -> Path | None:
    """Installs code below `folder`, verified as in a pod; returns its folder, or None for a job without code.

    Raises:
        CommandError: the code cannot be used, or the storage or git server cannot be reached.
    """
    if code is None:
        return None
    place = folder / code.identity[:12]
    field = "repository" if code.repository is not None else "archive"
    try:
        if code.repository is not None:
            install_commit(code.repository, code.identity, place)
        else:
            install(code.archive or "", code.identity, place, token=access_token)
    except CodeRefused as refused:
        raise CommandError(str(refused), exit_code=refused.exit_code) from refused
    except OSError as error:
        raise CommandError(f"spec.code.{field}: {error}; check the network and the disk", exit_code=1) from error
    return place


@contextmanager
def importing_code(environ: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The environment of a job's process with its code on PYTHONPATH, as its launcher sets it, until the block ends.

    Without `spec.packages`, which the launcher installs when it starts.

    Raises:
        CommandError: the code cannot be used.
    """
    alone = {name: value for name, value in environ.items() if name not in (REQUIREMENTS, WHEELS)}
    with tempfile.TemporaryDirectory() as scratch:
        try:
            variables, _ = code_variables(alone, Path(scratch), [sys.executable])
        except CodeRefused as refused:
            raise CommandError(str(refused), exit_code=refused.exit_code) from refused
        yield {**alone, **variables}
