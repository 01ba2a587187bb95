"""A job whose JobSet has not ended: what is counted, quoted and looked at again, and when."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import BOTH, NOW, ended, host, job, jobset, observed, recorded
from tests.operator.manifests import TRAINER
from tests.statuses import flat
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import Decision, decide, judge
from tpujob_operator.observe.state import Ended, Host, Observed
from tpujob_resource.messages import remedies
from tpujob_resource.messages.conditions import Reason
from tpujob_resource.models.phases import Phase
from tpujob_resource.models.times import format_time

SETTINGS = Settings(network_policies=False)
UNREADY = (host(0), host(1, ready=False))
IN_A_ROW = {
    "internal.bookedRestarts": 2,
    "internal.restartsWithoutProgress": 2,
    "internal.restartedAtStep": 0,
    "internal.restartTime": format_time(NOW),
    "restarts.nextTime": format_time(NOW + timedelta(seconds=10)),
}


def seen(status: dict[str, Any] | None = None, *, spec: dict[str, Any] | None = None, **fields: Any) -> Observed:
    manifest = job(status=status or recorded(), **(spec or {}))
    return observed(manifest, **{"jobset": jobset(), "hosts": BOTH, **fields})


def paused(*, message: str | None = "as before", **fields: Any) -> Observed:
    status = recorded("Restarting", **IN_A_ROW, message=message)
    its = jobset(restarts=2, suspended=fields.pop("suspended", True))
    crashes = (ended(0, 1, attempt=0), ended(1, 1, attempt=1))
    known = {key: value for key, value in status.items() if value is not None}
    return seen(known, **{"jobset": its, "ended": crashes, "hosts": (), **fields})


NOT_READY = {
    # name: (what is seen, reason)
    "resuming": (seen(recorded("Suspended", hostsReady=2), jobset=jobset(suspended=True)), Reason.HOSTS_STARTING),
    "somebody else's Service": (
        seen(recorded("Queued", hostsReady=2), jobset=jobset(suspended=True), foreign_service="llama"),
        Reason.SERVICE_NAME_TAKEN,
    ),
    "paused": (paused(), Reason.RESTART_PAUSED),
    "stopping": (seen(recorded(hostsReady=2), spec={"suspend": True}), Reason.STOPPING),
}


@pytest.mark.parametrize(("look", "reason"), NOT_READY.values(), ids=NOT_READY.keys())
def test_hosts_of_a_job_that_does_not_run_are_not_ready(look: Observed, reason: Reason) -> None:
    verdict = judge(look, SETTINGS)
    assert (verdict.condition_update.reason, verdict.status_update.hosts_ready) == (reason, 0)


def test_job_that_is_resumed_awaits_all_its_hosts() -> None:
    verdict = judge(seen(recorded("Suspended"), jobset=jobset(suspended=True)), SETTINGS)
    assert "0 of 2 hosts" in verdict.condition_update.message


def test_pause_quotes_the_last_attempt() -> None:
    before = recorded("Running", bookedRestarts=1, restartsWithoutProgress=1, restartedAtStep=0)
    crashes = (ended(0, 1, attempt=0), ended(1, 3, attempt=1))
    verdict = judge(seen(before, jobset=jobset(restarts=2), ended=crashes, hosts=UNREADY), SETTINGS)
    assert verdict.condition_update.reason is Reason.RESTART_PAUSED
    assert "slice 0 host 1" in verdict.condition_update.message


def test_pause_keeps_its_message_where_there_is_one() -> None:
    assert judge(paused(), SETTINGS).condition_update.message == "as before"
    assert "slice 0 host 1" in judge(paused(message=None), SETTINGS).condition_update.message


def test_pause_ends_for_hosts_that_run_and_not_for_those_that_stop() -> None:
    assert judge(paused(hosts=BOTH), SETTINGS).condition_update.reason is Reason.RESTART_PAUSED
    assert judge(paused(hosts=BOTH, suspended=False), SETTINGS).condition_update.reason is Reason.ALL_HOSTS_READY
    assert judge(paused(hosts=UNREADY, suspended=False), SETTINGS).condition_update.reason is Reason.RESTART_PAUSED


ARRIVED = {
    # name: (a host beside one without a node, how many have arrived)
    "has an address": (host(0, ready=False, ip="10.0.0.1"), 1),
    "is ready": (host(0), 1),
    "has succeeded": (host(0, ready=False, succeeded=True), 1),
    "has nothing": (host(0, ready=False), 0),
}


@pytest.mark.parametrize(("other", "count"), ARRIVED.values(), ids=ARRIVED.keys())
def test_host_has_arrived_that(other: Host, count: int) -> None:
    waiting = host(1, ready=False, unschedulable="no node")
    verdict = judge(seen(recorded("Starting"), hosts=(other, waiting)), SETTINGS)
    assert verdict.condition_update.phase == "WaitingForCapacity"
    assert f"{count} of 2 hosts have arrived" in verdict.condition_update.message


RESTARTS = {
    # name: (phase before, booked restarts, those of the JobSet, phase after)
    "after a rest": ("Starting", 2, 2, "Starting"),
    "after a rest, and once more": ("Starting", 1, 2, "Restarting"),
    "after a rest, the first one": ("Starting", None, 1, "Restarting"),
    "none yet": ("Starting", None, 0, "Starting"),
    "it ran": ("Running", 2, 2, "Restarting"),
    "it stood still": ("Stalled", 2, 2, "Restarting"),
    "it restarts": ("Restarting", 2, 2, "Restarting"),
}


@pytest.mark.parametrize(("before", "booked", "restarts", "after"), RESTARTS.values(), ids=RESTARTS.keys())
def test_start_after_a_rest_is_no_restart(before: str, booked: int | None, restarts: int, after: str) -> None:
    status = recorded(before) if booked is None else recorded(before, bookedRestarts=booked)
    assert (
        judge(seen(status, jobset=jobset(restarts=restarts), hosts=UNREADY), SETTINGS).condition_update.phase == after
    )


WORKERS = {
    # name: (ready hosts, whether all have been there before, phase)
    "all": (2, False, "Running"),
    "one, the others come": (1, False, "Starting"),
    "one, the others are gone": (1, True, "Running"),
    "none, all are gone": (0, True, "Starting"),
}


@pytest.mark.parametrize(("ready", "has_run", "phase"), WORKERS.values(), ids=WORKERS.keys())
def test_workers_that_are_there_make_progress(ready: int, has_run: bool, phase: str) -> None:
    extract = {**TRAINER, "task": "extract", "extract": {"layers": [1]}}
    spec = {"accelerator": "cpu:1x1", "workers": 2, "trainer": extract, "image": None, "command": None}
    started = {"startTime": format_time(NOW - timedelta(hours=1))} if has_run else {}
    hosts = tuple(host(index, ready=index < ready) for index in range(2))
    look = seen(recorded("Starting", **started), spec={**spec, "checkpointDir": "gs://bucket/features"}, hosts=hosts)
    assert judge(look, SETTINGS).condition_update.phase == phase


@pytest.mark.parametrize(("hosts", "seconds"), [((host(0, ready=False),), 2.0), (UNREADY, 15.0)], ids=["one", "both"])
def test_pods_that_are_not_made_are_looked_for_more_often(hosts: tuple[Host, ...], seconds: float) -> None:
    assert judge(seen(recorded("Starting"), hosts=hosts), SETTINGS).requeue_after_seconds == seconds


REPORT_DUE = {
    # name: (spec, step, seconds)
    "no step yet": ({"trainer": TRAINER, "image": None, "command": None}, None, 5.0),
    "a step": ({"trainer": TRAINER, "image": None, "command": None}, 7, 30.0),
    "a program of one's own": ({}, None, 30.0),
}


@pytest.mark.parametrize(("spec", "step", "seconds"), REPORT_DUE.values(), ids=REPORT_DUE.keys())
def test_first_step_is_asked_for_more_often(spec: dict[str, Any], step: int | None, seconds: float) -> None:
    status = recorded() if step is None else recorded(step=step)
    look = seen({**status, "progress.stepTime": format_time(NOW)}, spec=spec)
    assert decide(look, SETTINGS).requeue_after_seconds == seconds


@pytest.mark.parametrize(
    ("message", "detail"), [("", "ImagePullBackOff."), ("no such image", "ImagePullBackOff: no such image.")]
)
def test_host_that_cannot_start_is_quoted(message: str, detail: str) -> None:
    stuck = host(1, ready=False, waiting_reason="ImagePullBackOff", waiting_message=message)
    blocked = judge(seen(recorded("Starting"), hosts=(host(0), stuck)), SETTINGS).condition_update.blocked
    assert blocked is not None
    assert blocked[0] is Reason.CANNOT_START
    assert detail in blocked[1]


def test_hosts_that_have_all_finished_wait_for_nobody() -> None:
    long_ago = NOW - timedelta(hours=1)
    done = tuple(host(index, ready=False, succeeded=True, finished_at=long_ago) for index in range(2))
    assert judge(seen(hosts=done), SETTINGS).condition_update.phase == "Running"
    assert judge(seen(hosts=(done[0], host(1))), SETTINGS).condition_update.reason is not Reason.RESTARTING
    assert judge(seen(hosts=(done[0], host(1))), SETTINGS).condition_update.phase == "Stalled"


@pytest.mark.parametrize("code", [1, 78], ids=["nothing to do", "something to do"])
@pytest.mark.parametrize("lines", ["", "the cause"], ids=["no lines", "lines"])
def test_last_lines_are_announced_where_advice_stands_before_them(code: int, lines: str) -> None:
    failing = seen(jobset=jobset(outcome="Failed"), ended=(ended(0, code, message=lines),))
    message = judge(failing, SETTINGS).condition_update.message
    assert message.endswith(lines)
    assert ("Its last lines:" in message) == (bool(lines) and bool(remedies.after_exit(code)))


def test_job_that_has_ended_says_what_it_said() -> None:
    assert judge(seen(recorded("Failed")), SETTINGS).condition_update.message == "as before"


def test_lines_without_advice_stand_alone() -> None:
    before = recorded(bookedRestarts=3, charged=4, crashedAtStep=0)
    message = judge(seen(before, ended=(ended(0, 1, message="the cause"),)), SETTINGS).condition_update.message
    assert "the cause" in message
    assert "Its last lines:" not in message


STOPPED_BY_ITSELF = ended(1, 75, after=-2)
TAKEN = ended(0, 143, after=-1, was_asked=True, asked_at=NOW - timedelta(seconds=3), is_disrupted=True)


def running_status() -> dict[str, Any]:
    """As it was written for the hosts that ran."""
    written = decide(seen(recorded("Starting", hosts=2)), SETTINGS).status
    return flat(written.as_stored())


@pytest.mark.parametrize("restarts", [0, 1], ids=["before JobSet has seen it", "after"])
def test_end_is_called_unexplained_only_when_its_cause_had_time_to_show(restarts: int) -> None:
    def look(*ends: Ended, seconds: float = 0) -> Decision:
        found = seen(running_status(), jobset=jobset(restarts=restarts), ended=ends, hosts=UNREADY)
        return decide(replace(found, now=NOW + timedelta(seconds=seconds)), SETTINGS)

    early = look(STOPPED_BY_ITSELF)
    assert (early.status.phase, early.note, early.requeue_after_seconds) == (Phase.RUNNING, None, 2.0)
    assert early.status.hosts_ready == 1
    explained = look(STOPPED_BY_ITSELF, TAKEN)
    assert explained.note is not None
    assert "evicted, preempted or shut down with its node" in explained.note.message
    late = look(STOPPED_BY_ITSELF, seconds=4)
    assert late.note is not None
    assert "after an end without a known cause" in late.note.message


def test_job_that_restarts_already_names_its_newest_end_at_once() -> None:
    status = decide(seen(running_status(), ended=(ended(0, 1),), hosts=UNREADY), SETTINGS).status
    assert status.phase is Phase.RESTARTING
    its = jobset(restarts=1)
    end = ended(1, 75, after=-2, attempt=1)
    verdict = judge(seen(flat(status.as_stored()), jobset=its, ended=(ended(0, 1), end), hosts=UNREADY), SETTINGS)
    assert "Restart 2, after an end without a known cause" in verdict.condition_update.message


def test_end_of_a_clock_that_is_ahead_is_not_waited_for() -> None:
    ahead = ended(1, 75, after=3600)
    assert decide(seen(running_status(), ended=(ahead,), hosts=UNREADY), SETTINGS).status.phase is Phase.RESTARTING
