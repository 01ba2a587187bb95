"""What must hold in every night: pure functions from a history to sentences about what was broken.

The first paragraph of each docstring is the invariant, and the page docs/reference/invariants.md is made of them.
"""

from collections.abc import Callable

from tests.nights.history import Facts, History, PodEnd, Seen, Struck
from tests.nights.schedule import INFRASTRUCTURE
from tpujob_resource.models.phases import RUNNING_PHASES, TERMINAL, Phase
from tpujob_resource.models.restart_causes import Cause

type Invariant = Callable[[History], list[str]]

DISTURBED_SECONDS = 5.0
"""Before a fault: what an operator has not seen yet when it is killed, it may never see."""
PROGRESS_SECONDS = 1.5
"""A little less than the interval at which the operator of a night writes progress."""
JOB_WAITS_SECONDS = 60.0
"""After the end of a pod until its Job makes the next one: 10 s, doubled at each end, and some for a busy machine."""
MOVES = "it does not rest"
LEFT = (Phase.STOPPING, Phase.SUSPENDED, Phase.RESTARTING)
"""Phases in which an attempt is over, or is about to be."""
PEOPLE = ("suspend", "edit", "retry", "delete", "delete-jobset")
CAUSE_OF: dict[str, Cause] = {
    "crash": Cause.CRASH,
    "fatal": Cause.CRASH,
    "stop": Cause.UNEXPLAINED,
    "evict": Cause.DISRUPTION,
    "delete-pod": Cause.DISRUPTION,
    "lose-node": Cause.DISRUPTION,
}
"""What a restart is to be put down to, by the blow."""
COUNTERS: dict[Cause, str] = {
    Cause.DISRUPTION: "restarts.disruptions",
    Cause.UNEXPLAINED: "restarts.unexplained",
    Cause.CAPACITY: "restarts.capacity",
    Cause.SUSPENSION: "internal.suspensionRestarts",
}
"""Fields that only grow; a restart that raises none of them is a crash, whose field a newer checkpoint sets back."""


def one_jobset_lives(history: History) -> list[str]:
    """Pods of two JobSets of one job never run at the same time."""
    running: dict[str, dict[str, str]] = {}
    broken = []
    for each in history.of("pod"):
        of_job = running.setdefault(each.facts["job"], {})
        was = set(of_job.values())
        if each.is_gone or each.facts["phase"] != "Running":
            of_job.pop(each.uid, None)
        else:
            of_job[each.uid] = each.facts["jobset"]
        now = set(of_job.values())
        if len(now) > 1 and now != was:
            broken.append(f"{each.at:.1f} s: {each.facts['job']}: pods of {len(now)} JobSets run: {sorted(of_job)}")
    return broken


def ended_stays_ended(history: History) -> list[str]:
    """A job that has ended stays in its phase until somebody raises `spec.retry` or edits the spec."""
    broken = []
    for later, was, now in history.statuses():
        asked = now.get("observedGeneration") != was.get("observedGeneration")
        if was.get("phase") in TERMINAL and now.get("phase") != was["phase"] and not asked:
            broken.append(f"{later.at:.1f} s: {later.name}: {now.get('phase')} after {was['phase']}")
    return broken


def step_goes_back_only_when_counted(history: History) -> list[str]:
    """The step in status goes back only with a restart, a stop or a new JobSet; a checkpoint never does."""
    broken = []
    counted = (
        "restarts.total",
        "internal.bookedRestarts",
        "incarnation",
        "restarts.inThesePods",
        "internal.suspensionRestarts",
        "slices.resizes",
    )
    restarting = {*counted, "internal.retry", "internal.jobSetUid"}
    for later, was, now in history.statuses():
        if now.get("lastCheckpointStep", 0) < was.get("lastCheckpointStep", 0):
            steps = f"{now.get('lastCheckpointStep')} after {was['lastCheckpointStep']}"
            broken.append(f"{later.at:.1f} s: {later.name}: the last checkpoint is {steps}")
        left = was.get("phase") in LEFT or now.get("phase") in (*LEFT, Phase.QUEUED)
        if now.get("step", 0) < was.get("step", 0) and not left and all(was.get(f) == now.get(f) for f in restarting):
            broken.append(f"{later.at:.1f} s: {later.name}: step {now.get('step')} after {was['step']}")
    return broken


def restarts_only_grow(history: History) -> list[str]:
    """Within one JobSet, the number of judged restarts never falls, and never exceeds what the JobSet has counted."""
    broken = []
    for later, was, now in history.statuses():
        is_same = was.get("internal.jobSetUid") is not None and was["internal.jobSetUid"] == now.get(
            "internal.jobSetUid"
        )
        if is_same and now.get("internal.bookedRestarts", 0) < was.get("internal.bookedRestarts", 0):
            counts = f"{now.get('internal.bookedRestarts')} after {was['internal.bookedRestarts']}"
            broken.append(f"{later.at:.1f} s: {later.name}: {counts}")
    made = {each.uid: each.facts["restarts"] for each in history.of("jobset") if not each.is_gone}
    for last in history.last("job"):
        status = last.facts["status"]
        judged, counted = status.get("internal.bookedRestarts", 0), made.get(status.get("internal.jobSetUid", ""))
        if counted is not None and judged > counted:
            broken.append(f"{last.name}: {judged} restarts are judged, and the JobSet counts {counted}")
    return broken


def each_fault_under_its_cause(history: History) -> list[str]:
    """Each restart is counted once, under the cause of the fault that made it.

    Nothing but a crash is ever charged; a process that fails by itself since another one left with code 75 is one, too.
    Other free causes are accepted in five cases:

    - unexplained, while something that all jobs share was disturbed;
    - unexplained, where processes lost one whose pod was asked to go, and may be gone before it is seen;
    - disruption, where a node was lost under a pod of the attempt before the restart was judged: the operator looks at
      nodes when it judges, since a lost node shows up later than the crashes that it makes. So a program that failed by
      itself is free if a node of its attempt is lost before that;
    - any free cause, beside an act of a person on the job, or while the queue had no quota;
    - suspension, where the JobSet was suspended as the attempt ended, or while the pod ran that was its last to end:
      a queue resumes what it admits although pods still stop.

    Restarts that are judged several at a time are not looked at.
    """
    broken = []
    roots: dict[tuple[str, int], list[PodEnd]] = {}
    for end in history.ends:
        if end.why in CAUSE_OF:
            roots.setdefault((end.jobset, end.attempt), []).append(end)
    for later, was, now in history.statuses():
        uid, attempt = now.get("internal.jobSetUid"), was.get("internal.bookedRestarts", 0)
        if uid is None or uid != was.get("internal.jobSetUid") or now.get("internal.bookedRestarts", 0) != attempt + 1:
            continue
        booked = _booked(was, now)
        found = roots.get((uid, attempt), [])
        allowed = {CAUSE_OF[end.why] for end in found} | _by_peers(history, uid, attempt)
        # A machine that is busy takes long from the end of pods that were asked to go to the count of their restart.
        gone = max((end.at for end in history.ends if (end.jobset, end.attempt) == (uid, attempt)), default=later.at)
        since = min((end.at for end in found), default=gone - DISTURBED_SECONDS) - DISTURBED_SECONDS
        around = [each for each in history.struck if each.at <= later.at and each.until >= since]
        if any(each.blow.kind in INFRASTRUCTURE for each in around):
            allowed |= {Cause.UNEXPLAINED}
        allowed |= _by_people(later.name, around) | _by_lost_nodes(history, uid, attempt, later.at)
        allowed |= _by_suspension(history, uid, attempt, gone)
        if len(booked) != 1 or not booked & allowed:
            injected = ", ".join(f"{end.why} {end.exit_code} of {end.pod}" for end in found) or "nothing"
            counted = ", ".join(sorted(booked)) or "nothing"
            message = f"restart {attempt + 1} is counted as {counted}, and what happened is: {injected}"
            broken.append(f"{later.at:.1f} s: {later.name}: {message} ({now.get('message')})")
    return broken


def _booked(was: Facts, now: Facts) -> set[Cause]:
    """The causes whose counters grew."""
    raised = {cause for cause, name in COUNTERS.items() if now.get(name, 0) > was.get(name, 0)}
    return raised or {Cause.CRASH}


def _by_peers(history: History, jobset: str, attempt: int) -> set[Cause]:
    """What peers make of an end: they name whom they lost, but for one that left as if it were asked to."""
    whys = {end.why for end in history.ends if (end.jobset, end.attempt) == (jobset, attempt)}
    if "peer" not in whys:
        return set()
    if "stop" in whys:
        return {Cause.CRASH}
    return {Cause.UNEXPLAINED} if whys & {"evict", "delete-pod", "lose-node"} else set()


def _by_lost_nodes(history: History, jobset: str, attempt: int, judged_at: float) -> set[Cause]:
    """Whether a node was lost under the attempt: not before its pods came to it."""
    came: dict[str, float] = {}
    for each in history.of("pod"):
        if (each.facts["jobset"], each.facts["attempt"]) == (jobset, attempt):
            came.setdefault(each.facts["node"], each.at)
    lost = [each for each in history.struck if each.node in came and each.node and each.at <= judged_at]
    return {Cause.DISRUPTION} if any(came[each.node] <= each.until for each in lost) else set()


def _by_suspension(history: History, jobset: str, attempt: int, ended_at: float) -> set[Cause]:
    """Whether the JobSet was suspended as the last pod of the attempt ended, or since that pod was made."""
    last = {end.pod for end in history.ends if (end.jobset, end.attempt, end.at) == (jobset, attempt, ended_at)}
    made_at = min((each.at for each in history.of("pod") if each.name in last), default=ended_at)
    before = [each for each in history.of("jobset") if each.uid == jobset and each.at <= ended_at]
    since = [each for each in before if each.at > made_at]
    return {Cause.SUSPENSION} if any(each.facts["suspend"] for each in (*before[-1:], *since)) else set()


def _by_people(job: str, around: list[Struck]) -> set[Cause]:
    """What restarts beside an act of a person, or of a queue, may be put down to."""
    hit = any(each.blow.target == job and each.blow.kind in PEOPLE for each in around)
    queue = any(each.blow.kind == "take-quota" for each in around)
    return {Cause.SUSPENSION, Cause.DISRUPTION, Cause.UNEXPLAINED} if hit or queue else set()


def status_is_true_at_rest(history: History) -> list[str]:
    """Some time after the last blow, each status is of the newest spec and says what is there.

    Running: all hosts, or some of `workers`, are ready, and so many are counted; the JobSet is the recorded one, of the
    newest spec, and all of its restarts are judged. Suspended: asked for. Queued: in a queue. Failed: something had
    failed. Nothing is on its way any more, with one exception: where a Job replaces its pods one by one (`workers`,
    `inPlaceRestarts`), Kubernetes waits from the time at which the pod before says that it ended. If the clock of its
    machine was ten minutes ahead, the job is Starting or Restarting for ten minutes, and says how many hosts are ready.
    """
    return untrue(history.until(history.rested_at))


def untrue(history: History) -> list[str]:
    """What the last status of each job says wrongly."""
    jobsets = {each.facts["owner"]: each for each in history.last("jobset")}
    pods = history.last("pod")
    broken = []
    for job in history.last("job"):
        own = [pod for pod in pods if pod.facts["job"] == job.name and pod.facts["phase"] in ("Pending", "Running")]
        whys = {end.why for end in history.ends if end.job == job.name}
        whys |= {struck.blow.kind for struck in history.struck if struck.blow.target == job.name}
        jobset = jobsets.get(job.uid)
        wrong = _wrong(job, jobset, own, whys)
        if wrong == MOVES and jobset is not None and _is_held_by_a_clock(history, job, jobset, own):
            continue
        status = job.facts["status"]
        broken += (
            [f"{job.name}: {wrong}, and status is {status.get('phase')}: {status.get('message')}"] if wrong else []
        )
    return broken


def _wrong(job: Seen, jobset: Seen | None, pods: list[Seen], whys: set[str]) -> str:
    """What of a status is not so; empty when nothing is."""
    status, spec = job.facts["status"], job.facts["spec"]
    phase = status.get("phase")
    if status.get("observedGeneration") != job.facts["generation"]:
        return f"generation {job.facts['generation']} is not observed"
    if phase == Phase.SUCCEEDED:
        return "" if "finished" in whys else "nothing has finished"
    if phase == Phase.FAILED:
        return "" if whys & {"crash", "fatal", "stop", "peer", "delete-jobset"} else "nothing has failed"
    if phase == Phase.SUSPENDED:
        return "" if spec.get("suspend") and not pods else "it is not suspended"
    if spec.get("suspend"):
        return "it is to be suspended"
    if phase == Phase.QUEUED:
        return "" if spec.get("queue") and jobset is not None and jobset.facts["suspend"] else "it is in no queue"
    if phase not in RUNNING_PHASES:
        return MOVES
    return _wrong_while_running(job, jobset, pods)


def _is_held_by_a_clock(history: History, job: Seen, jobset: Seen, pods: list[Seen]) -> bool:
    """Whether the Job controller does not make the next pod yet, and status says how many are ready."""
    status, now = job.facts["status"], history.seen[-1].at
    ready = sum(pod.facts["ready"] for pod in pods)
    if status.get("phase") not in (Phase.STARTING, Phase.RESTARTING) or status.get("hostsReady") != ready:
        return False
    attempt = (jobset.uid, jobset.facts["restarts"])
    ends = [end.at for end in history.ends if (end.jobset, end.attempt) == attempt and end.exit_code]
    ahead = [each for each in history.struck if each.blow.kind == "wrong-clock" and each.blow.number > 0]
    return any(
        each.at <= end <= each.until + DISTURBED_SECONDS and now < end + each.blow.number + JOB_WAITS_SECONDS
        for each in ahead
        for end in ends
    )


def _wrong_while_running(job: Seen, jobset: Seen | None, pods: list[Seen]) -> str:
    status = job.facts["status"]
    if jobset is None or jobset.uid != status.get("internal.jobSetUid"):
        return "its JobSet is not the recorded one"
    ready = [pod for pod in pods if pod.facts["ready"] and pod.facts["jobset"] == jobset.uid]
    # Workers come back one by one, and their Job may be stuck meanwhile (kubernetes/kubernetes#139428).
    wanted = len(ready) if job.facts["spec"].get("workers") and ready else status.get("hosts")
    if not len(ready) == wanted == status.get("hostsReady"):
        return f"{len(ready)} of {status.get('hosts')} hosts are ready"
    if jobset.facts["restarts"] != status.get("internal.bookedRestarts", 0):
        return f"{status.get('internal.bookedRestarts', 0)} of {jobset.facts['restarts']} restarts are judged"
    if job.facts["spec"].get("args", []) != jobset.facts["args"] and "args" in job.facts["spec"]:
        return f"its JobSet was made with {jobset.facts['args']}"
    return ""


def nothing_is_left(history: History) -> list[str]:
    """Some time after a job is deleted, no JobSet, Job, pod, Service or NetworkPolicy of it is left."""
    return left_over(history)


def left_over(history: History) -> list[str]:
    """What is there of jobs that are not."""
    there = {each.uid for each in history.last("job")}
    owners = there | {each.uid for each in history.last("jobset") if each.facts["owner"] in there}
    kinds = ("jobset", "worker-job", "service", "policy")
    left = [
        f"{each.kind} {each.name}" for kind in kinds for each in history.last(kind) if each.facts["owner"] not in owners
    ]
    names = {each.name for each in history.last("job")}
    left += [f"pod {each.name}" for each in history.last("pod") if each.facts["job"] not in names]
    return [f"{what} is left" for what in sorted(left)] + [f"job {name} is left" for name in sorted(names)]


def writes_and_events_are_bounded(history: History) -> list[str]:
    """The operator's writes and Events about a job are bounded by what has happened to it.

    At most a few dozen, some for each blow, restart and JobSet, and one for each interval of progress.
    """
    broken = []
    jobsets, hits = history.versions("jobset"), len(history.struck)
    for name in sorted({each.name for each in history.of("job")}):
        own = sum(versions[0].name == name for versions in jobsets.values())
        ends = len({(end.jobset, end.attempt) for end in history.ends if end.job == name})
        happened = own + ends + hits
        events = {each.uid for each in history.of("event") if each.facts["about"] == name}
        most_writes = 30 + 10 * happened + history.seconds / PROGRESS_SECONDS
        if history.writes.get(name, 0) > most_writes:
            broken.append(f"{name}: {history.writes[name]} writes, at most {most_writes:.0f} are explained")
        if len(events) > 10 + 4 * happened:
            broken.append(f"{name}: {len(events)} Events, at most {10 + 4 * happened} are explained")
    return broken


def no_program_ends_by_itself(history: History) -> list[str]:
    """The operator never ends unless it is killed."""
    return list(history.own_ends)


INVARIANTS: tuple[Invariant, ...] = (
    one_jobset_lives,
    ended_stays_ended,
    step_goes_back_only_when_counted,
    restarts_only_grow,
    each_fault_under_its_cause,
    status_is_true_at_rest,
    nothing_is_left,
    writes_and_events_are_bounded,
    no_program_ends_by_itself,
)


def broken(history: History) -> list[str]:
    """All that a night has broken, each with the invariant's name."""
    return [f"{each.__name__}: {what}" for each in INVARIANTS for what in each(history)]
