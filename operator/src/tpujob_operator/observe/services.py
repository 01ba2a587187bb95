"""Whether the Service by which the hosts of a job find each other is its JobSet's; read seldom while the job runs."""

import asyncio
from dataclasses import dataclass

from tpujob_contract import kubernetes_names
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import SERVICES, Storage
from tpujob_operator.observe.missing_rights import MissingRights
from tpujob_operator.observe.state import JobSetState
from tpujob_operator.observe.terminations import Key


@dataclass(frozen=True, slots=True)
class _Read:
    """The Service as it was found."""

    jobset_uid: str
    at: float
    is_ours: bool = False
    foreign: str | None = None
    """Its name, if it is foreign."""


class ServiceReader:
    """Reads the Service that JobSet makes for a job, or would take for its own."""

    def __init__(self, storage: Storage, *, interval_seconds: float) -> None:
        """Keeps the parts; no Service of a running job is read twice within `interval_seconds`."""
        self._storage = storage
        self._interval = interval_seconds
        self._read: dict[Key, _Read] = {}
        self._rights = MissingRights(
            "services", "one that somebody else made goes unnoticed", interval_seconds=interval_seconds
        )

    async def foreign(self, key: Key, jobset: JobSetState, *, is_running: bool) -> str | None:
        """Name of the Service that was not made for this JobSet; None: there is none, or it may not be read.

        Args:
            key: Of the job.
            jobset: The job's.
            is_running: Whether all hosts have found each other. JobSets of earlier releases have no such Service.

        Raises:
            ApiError: it could not be read, for another reason than a missing right.
        """
        now = asyncio.get_running_loop().time()
        read = self._read.get(key)
        if read is not None and read.jobset_uid == jobset.uid:
            is_recent = now - read.at < self._interval
            if read.is_ours or (is_recent and (is_running or (read.foreign is None and not jobset.suspended))):
                return read.foreign
        if self._rights.is_missing(key[0]):
            return None
        self._read[key] = read = await self._look(key, jobset, now)
        return read.foreign

    def forget(self, key: Key) -> None:
        """Drops what was read for a job."""
        self._read.pop(key, None)

    async def _look(self, key: Key, jobset: JobSetState, now: float) -> _Read:
        name = kubernetes_names.child_name(key[1])
        try:
            service = await self._storage.get(SERVICES, key[0], name)
        except errors.Forbidden as error:
            self._rights.note(key[0], error)
            return _Read(jobset.uid, now)
        if service is None:
            return _Read(jobset.uid, now)
        owners = [owner["uid"] for owner in service["metadata"].get("ownerReferences") or []]
        return _Read(jobset.uid, now, is_ours=True) if jobset.uid in owners else _Read(jobset.uid, now, foreign=name)
