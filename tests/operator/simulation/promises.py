"""What must hold at every write, and at the end, whatever has happened."""

from typing import Any

from tests.operator.simulation.api import Object, Server
from tests.statuses import flat
from tpujob_contract import kubernetes_names
from tpujob_resource.jobset.build import spec_hash
from tpujob_resource.models.phases import TERMINAL
from tpujob_resource.rules.load import load_job, without_status

JOBS = "tputrainingjobs"


class Promises:
    """Watches the store itself, and keeps what was broken."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.broken: list[str] = []
        self.revived_on_purpose: set[str] = set()
        """Uids of jobs that somebody has asked to run again."""
        self._ran: dict[tuple[str, str], str] = {}
        self.status_writes = 0
        self.sizes: set[int] = set()
        """Numbers of slices that JobSets were made with."""
        server.changed.append(self._look)

    def _look(self, plural: str, before: Object | None, after: Object | None) -> None:
        if after is None:
            return
        if plural == JOBS and before is not None and before.get("status") != after.get("status"):
            self.status_writes += 1
            self._terminal_stays(before, after)
            self._begins_at_the_last_checkpoint(after)
        if plural == "jobsets" and before is None:
            self._has_a_right_size(after)
        if plural == "jobsets" and not after["spec"]["suspend"]:
            self._only_one_runs(after)
            if before is not None and before["spec"]["suspend"]:
                self._may_be_resumed(after)

    def _terminal_stays(self, before: Object, after: Object) -> None:
        uid = after["metadata"]["uid"]
        was, now = (_status(one).get("phase") for one in (before, after))
        if was in TERMINAL and now != was:
            if uid not in self.revived_on_purpose:
                self._break(f"{now} after {was}, and nobody asked for it")
            self.revived_on_purpose.discard(uid)

    def _begins_at_the_last_checkpoint(self, job: Object) -> None:
        """Nobody asks the processes that run: what a running job shows is where its attempt has begun."""
        status = _status(job)
        step, committed = status.get("step"), status.get("lastCheckpointStep")
        if status.get("phase") in ("Running", "Stalled") and step != committed:
            self._break(f"step {step} is shown, and the attempt has begun at {committed}")

    def _may_be_resumed(self, jobset: Object) -> None:
        job = self._owner(jobset)
        if job is None:
            return
        status = _status(job)
        if status.get("phase") in TERMINAL:
            self._break(f"JobSet resumed while the job is {status['phase']}")
        if status.get("internal.jobSetUid") != jobset["metadata"]["uid"]:
            self._break("JobSet resumed that is not the recorded one")

    def _only_one_runs(self, jobset: Object) -> None:
        job = self._owner(jobset)
        if job is None:
            return
        key = (job["metadata"]["uid"], jobset["metadata"]["labels"].get(kubernetes_names.INCARNATION, "1"))
        uid = jobset["metadata"]["uid"]
        if self._ran.setdefault(key, uid) != uid:
            self._break(f"a second JobSet runs for incarnation {key[1]}")

    def _has_a_right_size(self, jobset: Object) -> None:
        job = self._owner(jobset)
        if job is None:
            return
        slices, most = jobset["spec"]["replicatedJobs"][0]["replicas"], job["spec"].get("slices", 1)
        self.sizes.add(slices)
        if not job["spec"].get("minSlices", most) <= slices <= most:
            self._break(f"a JobSet of {slices} slices")

    def _owner(self, jobset: Object) -> Object | None:
        owner = jobset["metadata"]["ownerReferences"][0]
        job = self._server.stored(JOBS, owner["name"])
        return job if job is not None and job["metadata"]["uid"] == owner["uid"] else None

    def check_rest(self, settled_writes: int) -> None:
        """Left alone for long: status says what is, every restart is booked, and nothing is written."""
        if self.status_writes != settled_writes:
            self._break(f"{self.status_writes - settled_writes} status writes at rest")
        for job in self._server.all(JOBS):
            status = _status(job)
            jobset = self._server.get("jobsets", job["metadata"]["name"])
            expected = _expected_phases(job, jobset)
            if status.get("phase") not in expected:
                self._break(f"phase {status.get('phase')}, expected {expected}: {status.get('message')}")
            if jobset is not None and status.get("internal.jobSetUid") == jobset["metadata"]["uid"]:
                self._restarts_are_booked(status, jobset)
                self._has_all_slices(job, jobset)
                self._runs_the_spec(job, jobset)

    def _restarts_are_booked(self, status: Any, jobset: Object) -> None:
        restarts, booked = (
            (jobset.get("status") or {}).get("restarts", 0),
            status.get("internal.bookedRestarts", 0),
        )
        # A JobSet may start its pods once more before it is suspended for a job that has failed; a retry makes another.
        is_right = booked <= restarts if status["phase"] == "Failed" else booked == restarts
        if not is_right:
            self._break(f"{booked} of {restarts} restarts are booked in phase {status['phase']}")

    def _runs_the_spec(self, job: Object, jobset: Object) -> None:
        """What the API server has accepted is what runs."""
        made_from = jobset["metadata"]["annotations"][kubernetes_names.SPEC_HASH]
        wanted = spec_hash(load_job(without_status(job)))
        if _status(job)["phase"] == "Running" and made_from != wanted:
            self._break(f"the JobSet was made from {made_from}, and the spec is {wanted}")

    def _has_all_slices(self, job: Object, jobset: Object) -> None:
        """All machines are back; one that is avoided is none for this job."""
        slices, status = jobset["spec"]["replicatedJobs"][0]["replicas"], _status(job)
        avoids = any("avoidedLabel" in node for node in status.get("nodeFailures", []))
        is_whole = slices == job["spec"].get("slices", 1)
        if status["phase"] == "Running" and not is_whole and not avoids:
            self._break(f"{slices} slices, and machines for all are free: {status}")

    def _break(self, what: str) -> None:
        self.broken.append(what)


def _status(job: Object) -> Object:
    return flat(job.get("status") or {})


def _expected_phases(job: Object, jobset: Object | None) -> tuple[str, ...]:
    """What an operator that has had enough time says."""
    if jobset is None or jobset["metadata"]["ownerReferences"][0]["uid"] != job["metadata"]["uid"]:
        return ("Succeeded", "Failed")
    conditions = (jobset.get("status") or {}).get("conditions") or []
    if conditions:
        return ("Succeeded",) if conditions[0]["type"] == "Completed" else ("Failed",)
    if jobset["spec"]["suspend"]:
        return ("Suspended", "Failed") if job["spec"].get("suspend") else ("Failed",)
    return ("Running",)
