"""Whatever happens in whatever order, the job ends up as its spec says, with one JobSet of the right incarnation.

Events, crashes between any two writes, decisions that are carried out late, evidence that is lost with the process,
edits, suspensions, failures, deletions. The cluster here is a model of the few things that decisions rest on; that the
real one behaves like it is shown by the live tests.
"""

from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.operator.building import NOW, ended, host, job, status_of
from tests.statuses import flat
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import Decision, decide
from tpujob_operator.decide.verdict import Step
from tpujob_operator.observe.from_objects import jobset_state
from tpujob_operator.observe.state import Ended, JobSetState, Observed
from tpujob_resource.jobset.build import spec_hash
from tpujob_resource.models.phases import EDITABLE_PHASES
from tpujob_resource.models.status import Status
from tpujob_resource.rules.load import load_job, without_status
from tpujob_resource.topology.errors import InvalidJob

SETTINGS = Settings(network_policies=False)
SETTLED_PASSES = 90
"""At 10 s each: the longest pause between restarts is among them."""


class JobLife(RuleBasedStateMachine):
    """One job, its JobSet and pods, and an operator that may be interrupted and late."""

    def __init__(self) -> None:
        super().__init__()
        self.manifest = job(args=["0"])
        self.version = 0
        self.jobset: JobSetState | None = None
        self.jobset_version = 0
        self.pods: int = 0
        self.evidence: tuple[Ended, ...] = ()
        self.made = 0
        self.late: list[tuple[Decision, int, int]] = []
        self.now = NOW

    # What the operator does.

    def see(self) -> Observed:
        attempt = self.jobset.restarts if self.jobset else 0
        runs = self.jobset is not None and not self.jobset.suspended and self.jobset.outcome is None
        hosts = tuple(host(i, attempt=attempt) for i in range(self.pods)) if runs else ()
        return Observed(
            manifest=deepcopy(self.manifest),
            jobset=self.jobset,
            hosts=hosts,
            ended=self.evidence,
            pods_left=self.pods,
            now=self.now,
        )

    def carry_out(self, decision: Decision, version: int, jobset_version: int, *, crash: int = 9) -> None:
        """With the preconditions of real writes; `crash`: after how many writes."""
        if decision.step in (Step.CREATE, Step.RESUME, Step.SUSPEND):
            assert decision.requeue_after_seconds is not None, "no watch tells us of what we wrote ourselves"
        if version != self.version and decision.patch:
            return  # Conflict: nothing after it is done
        if decision.patch:
            Status.model_validate(status_of(decision))
            self.manifest["status"] = deepcopy(decision.status.as_stored())
            self.version += 1
            crash -= 1
        if crash <= 0 or decision.step is None:
            return
        if decision.step is Step.CREATE:
            assert decision.manifest is not None
            if self.jobset is None:
                self.made += 1
                made = deepcopy(decision.manifest)
                made["metadata"]["uid"] = f"jobset-{self.made}"
                created = jobset_state(made)
                assert created.suspended
                self.set_jobset(created)
            return
        if self.jobset is None or jobset_version != self.jobset_version:
            return
        if decision.step is Step.DELETE:
            self.set_jobset(replace(self.jobset, being_deleted=True))
        else:
            if decision.step is Step.RESUME:
                assert self.jobset.uid == flat(self.manifest.get("status") or {}).get("internal.jobSetUid")
            self.set_jobset(replace(self.jobset, suspended=decision.step is Step.SUSPEND))

    def set_jobset(self, jobset: JobSetState | None) -> None:
        self.jobset = jobset
        self.jobset_version += 1

    @rule()
    def look(self) -> None:
        self.carry_out(decide(self.see(), SETTINGS), self.version, self.jobset_version)

    @rule(writes=st.integers(0, 1))
    def look_and_crash(self, writes: int) -> None:
        self.carry_out(decide(self.see(), SETTINGS), self.version, self.jobset_version, crash=writes)
        self.evidence = ()

    @rule()
    def look_and_be_paused(self) -> None:
        self.late.append((decide(self.see(), SETTINGS), self.version, self.jobset_version))

    @precondition(lambda self: self.late)
    @rule()
    def wake_up(self) -> None:
        self.carry_out(*self.late.pop(0))

    # What people do.

    @rule(suspend=st.booleans())
    def suspend_or_resume(self, suspend: bool) -> None:
        self.edit(suspend=suspend)

    @precondition(lambda self: self.phase in EDITABLE_PHASES)
    @rule(accelerator=st.sampled_from(["cpu:2x1", "v4-17"]), word=st.integers(0, 3))
    def edit_what_is_frozen(self, accelerator: str, word: int) -> None:
        self.edit(accelerator=accelerator, args=[str(word)])

    def edit(self, **fields: Any) -> None:
        if {**self.manifest["spec"], **fields} != self.manifest["spec"]:
            self.manifest["spec"] |= fields
            self.manifest["metadata"]["generation"] += 1
            self.version += 1

    @precondition(lambda self: self.jobset is not None)
    @rule()
    def delete_the_jobset(self) -> None:
        assert self.jobset is not None
        self.set_jobset(replace(self.jobset, being_deleted=True))

    # What the cluster does.

    @rule()
    def time_passes(self) -> None:
        self.now += timedelta(seconds=10)
        jobset = self.jobset
        if jobset is None:
            return
        if jobset.suspended or jobset.being_deleted or jobset.outcome is not None:
            self.pods = max(0, self.pods - 1)
            if jobset.being_deleted and self.pods == 0:
                self.set_jobset(None)
                self.evidence = ()
        else:
            self.pods = min(2, self.pods + 1)

    @precondition(lambda self: self.pods == 2 and self.runs)
    @rule(code=st.sampled_from([1, 75, 77, 137]))
    def host_ends(self, code: int) -> None:
        assert self.jobset is not None
        self.evidence += (ended(0, code, attempt=self.jobset.restarts), ended(1, 143, attempt=self.jobset.restarts))
        self.pods = 0
        if code == 77:
            self.set_jobset(replace(self.jobset, outcome="Failed", outcome_at=self.now))
        else:
            self.set_jobset(replace(self.jobset, restarts=self.jobset.restarts + 1))

    @precondition(lambda self: self.pods == 2 and self.runs)
    @rule()
    def all_finish(self) -> None:
        assert self.jobset is not None
        self.pods = 0
        self.set_jobset(replace(self.jobset, outcome="Completed", outcome_at=self.now))

    # What must hold.

    @property
    def phase(self) -> str:
        phase: str = (self.manifest.get("status") or {}).get("phase", "")
        return phase

    @property
    def runs(self) -> bool:
        return (
            self.jobset is not None
            and not self.jobset.suspended
            and not self.jobset.being_deleted
            and self.jobset.outcome is None
        )

    @invariant()
    def phase_says_suspended_only_without_pods(self) -> None:
        if self.phase == "Suspended" and self.jobset is not None and self.jobset.suspended:
            assert self.pods == 0

    def teardown(self) -> None:
        """Left alone, it comes to rest where the spec wants it."""
        self.late.clear()
        for _ in range(SETTLED_PASSES):
            self.look()
            self.time_passes()
        rest = decide(self.see(), SETTINGS)
        assert rest.patch == {}
        assert rest.step is None
        if self.phase in ("Succeeded", "Failed"):
            assert not self.runs
            return
        try:
            wanted = spec_hash(load_job(without_status(self.manifest)))
        except InvalidJob:
            assert (self.phase, self.runs) == ("Invalid", False)
            return
        assert self.jobset is not None
        assert self.jobset.uid == self.manifest["status"]["internal"]["jobSetUid"]
        assert self.jobset.incarnation == self.manifest["status"]["incarnation"]
        assert self.jobset.spec_hash == wanted
        assert self.phase == ("Suspended" if self.manifest["spec"].get("suspend") else "Running")


TestJobLife = JobLife.TestCase
TestJobLife.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
