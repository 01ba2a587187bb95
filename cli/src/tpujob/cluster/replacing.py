"""Gives an existing job another spec: if necessary, saves and stops it first; it continues from its checkpoints."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpujob.cluster import watch
from tpujob.cluster.changing import create, refused, require_one_namespace
from tpujob.cluster.client import ApiError, Cluster, Object
from tpujob.output.errors import CommandError
from tpujob_resource.models.phases import EDITABLE_PHASES, Phase

NOT_FOUND, CONFLICT, INVALID = 404, 409, 422
TRIES = 5
"""Of a replacement that conflicts with another write: the operator writes a status every few seconds."""
SHOWN_CHARACTERS = 60
"""The longest value that is shown in full."""


@dataclass(frozen=True)
class Replacement:
    """The result of a replacement."""

    job: Object
    """As the server has it now."""
    before: Object | None
    """None: there was no such job, and it was created."""
    spec: Mapping[str, Any]
    """The spec that it has, or would have, with the server's defaults."""

    def lines(self, *, is_rehearsal: bool) -> Iterator[str]:
        """Lines about what happened, or would happen, and about each field that changed."""
        name = f"{self.job['metadata']['namespace']}/{self.job['metadata']['name']}"
        if self.before is None:
            yield f"{name}: {'would be created' if is_rehearsal else 'created, as there was none'}"
            return
        found = list(changes(self.before["spec"], self.spec))
        if not found:
            has_failed = (self.before.get("status") or {}).get("phase") == Phase.FAILED
            hint = f"; `tpujob retry {self.job['metadata']['name']}` starts it anew" if has_failed else ""
            yield f"{name}: nothing differs, and nothing was done{hint}"
            return
        yield f"{name}: {'would be changed' if is_rehearsal else 'changed'}"
        yield from (f"  {line}" for line in found)


def submit_job(
    cluster: Cluster, manifest: Mapping[str, Any], *, dry_run: bool, replace: bool, say: Callable[[str], object]
) -> tuple[Object, list[str]]:
    """Creates a job, or gives an existing one this spec if `replace` is set.

    Args:
        cluster: Where the job goes.
        manifest: Of the job.
        dry_run: Have the server check it, and change nothing.
        replace: As `replace_job`; otherwise a job of this name is an error.
        say: As `replace_job`.

    Returns:
        The job as the server has it, or would have it, and lines about what happened.

    Raises:
        CommandError: another namespace is asked for, the server refuses the job or does not know the kind, a job of
            that name exists, or as `replace_job`.
    """
    require_one_namespace(cluster, manifest)
    if replace:
        replacement = replace_job(cluster, manifest, dry_run=dry_run, say=say)
        return replacement.job, list(replacement.lines(is_rehearsal=dry_run))
    created = create(cluster, manifest, dry_run=dry_run)
    name = created["metadata"]["name"]
    told = "the cluster would accept it" if dry_run else f"created; `tpujob describe {name}` says how it stands"
    return created, [f"{cluster.namespace}/{name}: {told}"]


def replace_job(
    cluster: Cluster, manifest: Mapping[str, Any], *, dry_run: bool, say: Callable[[str], object]
) -> Replacement:
    """Gives a job the spec, labels and annotations of a manifest; creates it if there is none.

    A spec that the API server refuses is refused before the job is stopped. A job that has this spec is left alone.

    Args:
        cluster: Where the job is.
        manifest: Of the job.
        dry_run: Change nothing, and stop nothing.
        say: Called with each line about how the job stops.

    Raises:
        CommandError: the server refuses the spec, or the job has succeeded, or the wait for its stop was interrupted.
    """
    name = manifest["metadata"]["name"]
    try:
        before = cluster.get(cluster.job_path(name))
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        made = create(cluster, manifest, dry_run=dry_run)
        return Replacement(made, None, made["spec"])
    if before["spec"].get("retry"):
        # It counts up over the life of the job, and files do not have it.
        manifest = {**manifest, "spec": {"retry": before["spec"]["retry"], **manifest["spec"]}}
    spec = _as_created(cluster, manifest)["spec"]
    if spec == before["spec"]:
        return Replacement(before, before, spec)
    _require_not_succeeded(before)
    if dry_run:
        return Replacement(before, before, spec)
    if not _is_accepted(cluster, manifest):
        _stop(cluster, name, say)
    try:
        return Replacement(_put(cluster, manifest), before, spec)
    except ApiError as error:
        raise refused(cluster, error) from error


def changes(before: Any, after: Any, path: str = "spec") -> Iterator[str]:
    """The differences between two values, a line for each field: `spec.trainer.steps: 100 → 200`."""
    if before == after:
        return
    old, new = ({} if each is None else each for each in (before, after))
    if isinstance(old, Mapping) and isinstance(new, Mapping) and (old or new):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from changes(old.get(key), new.get(key), f"{path}.{key}")
    elif before is None:
        yield f"{path}: {_shown(after)}, which was not there"
    elif after is None:
        yield f"{path}: gone, it was {_shown(before)}"
    else:
        yield f"{path}: {_shown(before)} → {_shown(after)}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _as_created(cluster: Cluster, manifest: Mapping[str, Any]) -> Object:
    """The object that the server would create from the manifest, under an unused name of the same length.

    Raises:
        CommandError: the server refuses it, or no such name is free.
    """
    name = manifest["metadata"]["name"]
    for last in "0123456789":
        other = {**manifest, "metadata": {**manifest["metadata"], "name": name[:-1] + last}}
        try:
            return cluster.create(f"{cluster.job_path()}?fieldValidation=Strict&dryRun=All", other)
        except ApiError as error:
            if error.status != CONFLICT:
                raise refused(cluster, error) from error
    raise CommandError(f"metadata.name: {name[:-1]}0 to {name[:-1]}9 are all there; take another name")


def _require_not_succeeded(job: Mapping[str, Any]) -> None:
    if (job.get("status") or {}).get("phase") == Phase.SUCCEEDED:
        raise CommandError(
            f"--replace: {job['metadata']['name']} has succeeded, and stays as it was; submit it under another "
            "metadata.name (checkpoint.adopt lets it go on from these checkpoints), or delete it first"
        )


def _is_accepted(cluster: Cluster, manifest: Mapping[str, Any]) -> bool:
    """Whether the server accepts the new spec without a stop of the job."""
    try:
        _put(cluster, manifest, query="&dryRun=All")
    except ApiError as error:
        if error.status != INVALID:
            raise
        return False
    return True


def _put(cluster: Cluster, manifest: Mapping[str, Any], *, query: str = "") -> Object:
    """Replaces the job's spec by the manifest's, with retries on write conflicts; returns the job.

    Raises:
        ApiError: the server refuses it.
    """
    path = cluster.job_path(manifest["metadata"]["name"])
    for left in reversed(range(TRIES)):
        try:
            return cluster.replace(f"{path}?fieldValidation=Strict{query}", _changed(cluster.get(path), manifest))
        except ApiError as error:
            if error.status != CONFLICT or not left:
                raise
    raise AssertionError("the last try returns or raises")


def _changed(job: Mapping[str, Any], manifest: Mapping[str, Any]) -> Object:
    metadata, given = dict(job["metadata"]), manifest["metadata"]
    for each in ("labels", "annotations"):
        if given.get(each):
            metadata[each] = {**(metadata.get(each) or {}), **given[each]}
    return {**job, "metadata": metadata, "spec": manifest["spec"]}


def _stop(cluster: Cluster, name: str, say: Callable[[str], object]) -> None:
    """Asks the job to save and stop, and waits until its phase allows any change.

    Raises:
        CommandError: it has succeeded meanwhile, or the wait was interrupted.
    """
    generation = cluster.patch(cluster.job_path(name), {"spec": {"suspend": True}})["metadata"]["generation"]
    say(f"{name}: asked to save and stop")

    def is_stopped(status: Mapping[str, Any]) -> bool:
        is_seen = (status.get("observedGeneration") or 0) >= generation
        return is_seen and (status.get("phase") in EDITABLE_PHASES or watch.has_ended(status))

    try:
        for line in watch.follow(lambda: cluster.job(name), until=is_stopped):
            say(line)
    except KeyboardInterrupt:
        raise CommandError(
            f"{name}: was asked to stop, and its spec is as it was; `tpujob resume {name}` lets it go on, and the same "
            "command again replaces it"
        ) from None
    _require_not_succeeded(cluster.job(name))
