"""What is recorded beside the phase: times, counts of hosts and units, conditions of the report."""

import re
from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import BOTH, NOW, condition, ended, host, job, jobset, observed, recorded, status_of
from tests.operator.manifests import TRAINER
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.verdict import Step
from tpujob_operator.observe.report import Progress, UnitCounts
from tpujob_operator.observe.state import Observed, PolicyState
from tpujob_resource.jobset.build import spec_hash
from tpujob_resource.messages.conditions import Reason, Type
from tpujob_resource.models.times import format_time
from tpujob_resource.rules.load import load_job

SETTINGS = Settings(network_policies=False)
TRAINS: dict[str, Any] = {"trainer": TRAINER, "command": None, "image": None}
EARLIER = format_time(NOW - timedelta(hours=1))


def written(seen: Observed) -> dict[str, Any]:
    return status_of(decide(seen, SETTINGS))


def running(status: dict[str, Any] | None = None, **fields: Any) -> Observed:
    return observed(job(status=status or recorded(), **TRAINS), **{"jobset": jobset(), "hosts": BOTH, **fields})


def message(status: dict[str, Any], kind: Type) -> str:
    return next(str(each["message"]) for each in status["conditions"] if each["type"] == kind)


def test_start_is_the_first_time_that_all_hosts_ran() -> None:
    assert written(running(recorded("Starting")))["startTime"] == format_time(NOW)
    assert written(running(recorded("Restarting", startTime=EARLIER)))["startTime"] == EARLIER


STEP_TIMES = {
    # name: (phase before, step before, whether the step's time is that of this look)
    "the hosts came up": ("Starting", None, True),
    "the hosts came up again": ("Restarting", 7, True),
    "a step": ("Running", 6, True),
    "a step of a job that stood still": ("Stalled", 6, True),
    "no step": ("Running", 7, False),
}


@pytest.mark.parametrize(("phase", "step", "is_new"), STEP_TIMES.values(), ids=STEP_TIMES.keys())
def test_time_of_a_step_is_when_it_changed(phase: str, step: int | None, is_new: bool) -> None:
    before = recorded(phase, startTime=EARLIER, stepTime=EARLIER, lastCheckpointStep=1)
    if step is not None:
        before["step"] = step
    # Another change, so that the status is written in each case.
    seen = running(before, progress=Progress(phase="training", step=7, steps=10, committed_step=5))
    assert written(seen)["progress.stepTime"] == (format_time(NOW) if is_new else EARLIER)


def units(claimed: int | None, rows_per_second: float | None, failures: dict[str, int]) -> UnitCounts:
    return UnitCounts(total=9, done=4, claimed=claimed, rows_per_second=rows_per_second, failures=failures)


UNITS = {
    # name: (counts of the report, what is recorded)
    "some are claimed": (units(2, 7.5, {"storage": 3}), (9, 4, 2, 3, 7.5, {"storage": 3})),
    "all are claimed": (units(5, 0.0, {}), (9, 4, 5, 0, 0.0, None)),
    "more claims than units": (units(7, None, {}), (9, 4, 5, 0, None, None)),
    "claims are not known": (units(None, None, {}), (9, 4, None, None, None, None)),
    "none is claimed": (units(0, 7.26, {}), (9, 4, 0, 5, 7.3, None)),
}


@pytest.mark.parametrize(("counts", "expected"), UNITS.values(), ids=UNITS.keys())
def test_units_add_up(counts: UnitCounts, expected: tuple[Any, ...]) -> None:
    found = written(running(progress=Progress(phase="extracting", units=counts)))["progress.units"]
    names = ("total", "done", "claimed", "left", "rowsPerSecond", "failures")
    assert tuple(found.get(name) for name in names) == expected


HOSTS = {
    # name: (recorded, JobSet, what is recorded of hosts, of ready ones, and the column)
    "those of the JobSet": ({}, jobset(slices=2), (4, 1, "1/4")),
    "before they are counted": ({"hosts": None}, jobset(), (2, 1, "1/2")),
    "as before, of a JobSet that is gone": ({"hostsReady": 1}, None, (2, 1, "1/2")),
}


@pytest.mark.parametrize(("status", "its", "expected"), HOSTS.values(), ids=HOSTS.keys())
def test_hosts_are_those_that_the_jobset_asks_for(status: dict[str, Any], its: Any, expected: tuple[Any, ...]) -> None:
    status = {key: value for key, value in recorded("Starting", **status).items() if value is not None}
    seen = running(status, jobset=its, hosts=(host(0), host(1, ready=False)))
    after = written(seen)
    assert (after["hosts"], after["hostsReady"], after["ready"]) == expected


def test_spec_of_a_running_job_is_accepted() -> None:
    status = written(running())
    assert condition(status, Type.VALID) == ("True", Reason.ACCEPTED)
    assert "All 2 hosts" not in message(status, Type.VALID)


def test_resume_that_is_refused_is_blocked() -> None:
    seen = running(recorded("Suspended"), jobset=jobset(suspended=True), hosts=(), jobset_refusal="quota is used up")
    assert condition(written(seen), Type.BLOCKED) == ("True", Reason.JOBSET_REFUSED)
    assert (
        condition(written(running(recorded("Suspended"), jobset=jobset(suspended=True), hosts=())), Type.BLOCKED)
        is None
    )


def test_hosts_of_a_job_at_rest_are_not_ready() -> None:
    seen = observed(job(status=recorded(hostsReady=2), suspend=True), jobset=jobset(suspended=True))
    assert written(seen)["hostsReady"] == 0
    queued = observed(job(status=recorded(hostsReady=2), queue="tpu"), jobset=jobset(suspended=True))
    assert written(queued)["hostsReady"] == 0


def test_policy_of_a_new_incarnation_is_not_made_before_it() -> None:
    policy = PolicyState()
    edited = job(status=recorded("Suspended", specHash="another"), suspend=True, generation=2)
    seen = observed(edited, jobset=jobset(suspended=True, spec_hash="another"), network_policy=policy)
    decision = decide(seen, Settings())
    assert decision.status.incarnation == 2
    assert decision.network_policy is None


def test_crash_whose_host_ended_with_the_first_is_told_once() -> None:
    seen = running(ended=(ended(0, 1), ended(1, 1, after=3)), hosts=())
    assert written(seen)["failure"]["host"] == "slice 0 host 0"


def test_ended_job_without_a_time_of_its_end_keeps_its_jobset() -> None:
    seen = observed(job(status=recorded("Succeeded"), ttlSecondsAfterFinished=0), jobset=jobset(outcome="Completed"))
    decision = decide(seen, SETTINGS)
    assert (decision.step, decision.requeue_after_seconds) == (None, None)


def test_job_whose_hosts_are_not_known_shows_none() -> None:
    after = written(observed(job(queue="tpu", suspend=True)))
    assert after["phase"] == "Suspended"
    assert {"hosts", "ready"} & after.keys() == set()


def test_restarts_of_another_jobset_are_not_counted() -> None:
    late = jobset(uid="another", restarts=7)
    assert "restarts.total" not in written(observed(job(status=recorded()), jobset=late))
    assert written(running(jobset=jobset(restarts=2)))["restarts.total"] == 2


DONE = (host(0, succeeded=True, ready=False), host(1, succeeded=True, ready=False))


def test_completion_is_now_where_the_jobset_says_no_time() -> None:
    assert written(running(jobset=jobset(outcome="Completed"), hosts=DONE))["completionTime"] == format_time(NOW)
    assert written(running(ended=(ended(0, 78),)))["completionTime"] == format_time(NOW)
    assert "completionTime" not in written(running())


def test_success_leaves_no_failure_and_nothing_to_do() -> None:
    before = recorded(
        steps=10,
        step=9,
        units={"total": 9, "done": 4, "claimed": 2, "left": 3},
        failure={"pod": "llama-w-0-0-abcde", "attempt": 0, "exitCode": 1},
        disruption={"attempt": 0, "pod": "llama-w-0-0-abcde", "exitCode": 143},
    )
    ended_at = NOW - timedelta(minutes=3)
    after = written(running(before, jobset=jobset(outcome="Completed", outcome_at=ended_at), hosts=DONE))
    assert (after["phase"], after["step"], after["completionTime"]) == ("Succeeded", 10, format_time(ended_at))
    assert after["progress.units"] == {"total": 9, "done": 9, "claimed": 0, "left": 0}
    assert {"failure", "internal.disruption"} & after.keys() == set()
    assert "progress.units" not in written(running(jobset=jobset(outcome="Completed", outcome_at=NOW), hosts=DONE))


def test_report_without_a_figure_keeps_the_known_one() -> None:
    before = recorded("Starting", goodput={"training": 5}, loss=2.5, tokensPerSecond=7)
    after = written(running(before, progress=Progress(phase="training", step=8)))
    assert (after["step"], after["progress.goodput"], after["progress.loss"], after["progress.tokensPerSecond"]) == (
        8,
        {"training": 5},
        2.5,
        7,
    )


def test_figures_are_rounded() -> None:
    report = Progress(phase="training", loss=2.123456789, tokens_per_second=99.5001, data_wait_fraction=0.126)
    after = written(running(recorded("Starting"), progress=report))
    assert (after["progress.loss"], after["progress.tokensPerSecond"], after["progress.dataWaitFraction"]) == (
        2.123457,
        100,
        0.13,
    )
    assert decide(observed(job(status=after, **TRAINS), jobset=jobset(), hosts=BOTH), SETTINGS).patch == {}


BY_CORES = "v4-16"
SHA256 = "0" * 64


def code(**spec: Any) -> dict[str, Any]:
    return {"code": {"archive": "gs://bucket/code.tar.gz", "sha256": SHA256}, **spec}


def test_what_a_jobset_is_made_from_is_recorded_with_it() -> None:
    spec = code(accelerator=BY_CORES)
    refused = written(observed(job(**spec), jobset_refusal="quota is used up"))
    wanted = spec_hash(load_job(job(**spec)))
    made = written(observed(job(**spec), jobset=jobset(suspended=True, spec_hash=wanted)))
    for status in (refused, made):
        assert BY_CORES in status["acceleratorNote"]
        assert status["codeSha256"] == SHA256
    assert made["internal.specHash"] == wanted
    assert "internal.specHash" not in written(observed(job(**spec), jobset=jobset(suspended=True)))


def test_commit_that_a_jobset_is_made_with_is_recorded() -> None:
    repository = {"repository": "https://git.example/a.git", "commit": "a" * 40}
    made = written(observed(job(code=repository), jobset=jobset(suspended=True)))
    assert made["codeCommit"] == "a" * 40
    assert "codeSha256" not in made
    packed = written(observed(job(**code()), jobset=jobset(suspended=True)))
    assert "codeCommit" not in packed


def test_what_is_recorded_of_a_jobset_stays() -> None:
    before = recorded("Starting", acceleratorNote="a note", codeSha256=SHA256, specHash="abc", warnings=["a warning"])
    after = written(running(before))
    kept = {name: after[name] for name in ("acceleratorNote", "codeSha256", "internal.specHash", "warnings")}
    assert after["phase"] == "Running"
    assert kept == {name: before[name] for name in kept}


def test_lowered_retry_of_an_ended_job_is_not_recorded() -> None:
    """Else raising it to what it was would start the job again."""
    lowered = observed(job(status=recorded("Failed", retry=3), retry=1, generation=2))
    assert written(lowered)["internal.retry"] == 3
    alive = observed(job(status=recorded("Starting"), retry=2), jobset=jobset(), hosts=BOTH)
    assert written(alive)["internal.retry"] == 2


OBSTACLES = {
    # name: (what the JobSet's events say, what its Jobs' say, reason)
    "Jobs": ("forbidden: quota", None, Reason.JOBS_REFUSED),
    "pods": (None, "forbidden: quota", Reason.CREATION_REFUSED),
    "pods of the Jobs that there are": ("an older word", "forbidden: quota", Reason.CREATION_REFUSED),
}


@pytest.mark.parametrize(("of_jobs", "of_pods", "reason"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_refusal_of_pods_is_newer_than_one_of_jobs(of_jobs: str | None, of_pods: str | None, reason: Reason) -> None:
    seen = running(recorded("Starting"), hosts=(), jobset_warning=of_jobs or "", creation_failure=of_pods)
    assert condition(written(seen), Type.BLOCKED) == ("True", reason)


def test_jobset_that_is_going_is_not_deleted_again() -> None:
    over = recorded("Succeeded", completionTime=EARLIER)
    spec = job(status=over, ttlSecondsAfterFinished=0)
    going = observed(spec, jobset=jobset(outcome="Completed", being_deleted=True))
    assert decide(going, SETTINGS).step is None
    assert decide(observed(spec, jobset=jobset(outcome="Completed")), SETTINGS).step is Step.DELETE


def test_end_has_the_condition_of_its_kind() -> None:
    finished = written(running(jobset=jobset(outcome="Completed", outcome_at=NOW), hosts=DONE))
    failed = written(running(ended=(ended(0, 78),)))
    assert (condition(finished, Type.SUCCEEDED), condition(finished, Type.FAILED)) == (("True", Reason.FINISHED), None)
    assert (condition(failed, Type.SUCCEEDED), condition(failed, Type.FAILED)) == (None, ("True", Reason.HOST_FAILED))


@pytest.mark.parametrize(("step", "told"), [(None, "none"), (7, "7")])
def test_job_that_stands_still_says_at_which_step(step: int | None, told: str) -> None:
    known: dict[str, Any] = {} if step is None else {"step": step}
    before = recorded(startTime=EARLIER, stepTime=EARLIER, **known)
    report = Progress(phase="training", step=step, steps=10)
    status = written(running(before, progress=report))
    assert condition(status, Type.STALLED) == ("True", Reason.NO_STEP)
    assert re.search(rf"\b{told}\b", message(status, Type.STALLED))
