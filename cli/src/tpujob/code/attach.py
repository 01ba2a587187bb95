"""`--code DIR` of `submit` and `run`: packs the code, stores it once, and adds it to the resource."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpujob.code.packing import Packed, pack
from tpujob.code.upload import store
from tpujob.errors import CommandError

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
        CommandError: the job has code already, there is no place for it, or it cannot be packed or stored.
    """
    refuse_two(manifest["spec"].get("code") is not None)
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


def _default_place(manifest: Mapping[str, Any]) -> str:
    directory = manifest["spec"].get("checkpointDir")
    if not directory:
        raise CommandError(
            "--code-to: is needed, as the job has no checkpointDir; name a folder that the pods can read"
        )
    return f"{directory.rstrip('/')}/code"
